from __future__ import annotations

import ssl

import pytest

from flowjoin._collector.handshake_faults import refusal_of
from flowjoin._model.reasons import Reason


def fault(kind: type[ssl.SSLError], **attributes: object) -> ssl.SSLError:
    made = kind(1, "text")
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (fault(ssl.SSLCertVerificationError, verify_code=10), Reason.TLS_CERTIFICATE_EXPIRED),
        (fault(ssl.SSLCertVerificationError, verify_code=9), Reason.TLS_CERTIFICATE_NOT_YET_VALID),
        (fault(ssl.SSLCertVerificationError, verify_code=18), Reason.TLS_CERTIFICATE_UNTRUSTED),
        (fault(ssl.SSLCertVerificationError, verify_code=26), Reason.TLS_CERTIFICATE_PURPOSE),
        (fault(ssl.SSLCertVerificationError, verify_code=23), Reason.TLS_CERTIFICATE_INVALID),
        (fault(ssl.SSLEOFError), Reason.TLS_HANDSHAKE_CUT),
        (fault(ssl.SSLError, reason="TLSV1_ALERT_UNKNOWN_CA"), Reason.TLS_REFUSED_BY_PEER),
        (fault(ssl.SSLError, reason="UNSUPPORTED_PROTOCOL"), Reason.TLS_VERSION_UNSUPPORTED),
        (fault(ssl.SSLError, reason="HTTP_REQUEST"), Reason.TLS_NOT_SPOKEN),
        (fault(ssl.SSLError, reason="NO_SHARED_CIPHER"), Reason.TLS_HANDSHAKE_FAILED),
        (fault(ssl.SSLError, reason=None), Reason.TLS_HANDSHAKE_FAILED),
    ],
)
def test_each_fault_has_a_reason(error: ssl.SSLError, reason: Reason) -> None:
    assert refusal_of(error) is reason
