from __future__ import annotations

import pytest

from flowjoin._certificates.identity import identity_of


@pytest.mark.parametrize(
    ("certificate", "identity"),
    [
        (None, None),
        ({"subject": ()}, None),
        ({"subject": ((("organizationName", "o"),), (("commonName", "node-1"),))}, "node-1"),
        ({"subject": ((("commonName", "a\nb"),),)}, "a?b"),
        (
            {
                "subject": ((("commonName", "c"),),),
                "subjectAltName": (("IP Address", "192.0.2.1"), ("DNS", "node-1.example")),
            },
            "node-1.example",
        ),
        ({"subject": (), "subjectAltName": (("URI", "spiffe://example/agent"),)}, "spiffe://example/agent"),
    ],
)
def test_an_alternative_name_goes_before_the_common_name(
    certificate: dict[str, object] | None, identity: str | None
) -> None:
    assert identity_of(certificate) == identity
