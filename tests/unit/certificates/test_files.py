"""What a server's TLS says about itself."""

import ssl

from flowjoin._certificates.files import ServerTls


def test_people_read_when_a_certificate_expires() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert ServerTls(context=context, expires=1827599498.0).expires_text == "2027-11-30T18:31:38Z"
