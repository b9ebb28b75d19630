"""Why a handshake failed, in the words of a closed set. Pure."""

from __future__ import annotations

import ssl
from typing import Final

from flowjoin._model.reasons import Reason

__all__ = ["refusal_of"]

# X509_V_ERR_… of OpenSSL's x509_vfy.h
_VERIFICATION: Final = {
    2: Reason.TLS_CERTIFICATE_UNTRUSTED,  # unable to get issuer certificate
    7: Reason.TLS_CERTIFICATE_UNTRUSTED,  # signature failure: an authority of the same name, not ours
    9: Reason.TLS_CERTIFICATE_NOT_YET_VALID,
    10: Reason.TLS_CERTIFICATE_EXPIRED,
    18: Reason.TLS_CERTIFICATE_UNTRUSTED,  # self-signed
    19: Reason.TLS_CERTIFICATE_UNTRUSTED,  # self-signed in the chain
    20: Reason.TLS_CERTIFICATE_UNTRUSTED,  # unable to get local issuer certificate
    21: Reason.TLS_CERTIFICATE_UNTRUSTED,  # unable to verify the first certificate
    26: Reason.TLS_CERTIFICATE_PURPOSE,
}
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Reason.TLS_CERTIFICATE_MISSING,
    "UNSUPPORTED_PROTOCOL": Reason.TLS_VERSION_UNSUPPORTED,
    "VERSION_TOO_LOW": Reason.TLS_VERSION_UNSUPPORTED,
    "WRONG_VERSION_NUMBER": Reason.TLS_NOT_SPOKEN,
    "HTTP_REQUEST": Reason.TLS_NOT_SPOKEN,
    "HTTPS_PROXY_REQUEST": Reason.TLS_NOT_SPOKEN,
    "UNKNOWN_PROTOCOL": Reason.TLS_NOT_SPOKEN,
    "RECORD_LAYER_FAILURE": Reason.TLS_NOT_SPOKEN,
    "PACKET_LENGTH_TOO_LONG": Reason.TLS_NOT_SPOKEN,
    "BAD_RECORD_TYPE": Reason.TLS_NOT_SPOKEN,
}


def refusal_of(fault: ssl.SSLError) -> Reason:
    """The reason of a failed handshake."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return _VERIFICATION.get(fault.verify_code, Reason.TLS_CERTIFICATE_INVALID)
    if isinstance(fault, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return Reason.TLS_HANDSHAKE_CUT
    reason = fault.reason or ""
    if "_ALERT_" in reason:  # TLSV1_ALERT_UNKNOWN_CA, SSLV3_ALERT_BAD_CERTIFICATE: what the client told us
        return Reason.TLS_REFUSED_BY_PEER
    return _REASONS.get(reason, Reason.TLS_HANDSHAKE_FAILED)
