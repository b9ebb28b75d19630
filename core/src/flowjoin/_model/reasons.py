"""Why bytes or records were refused: closed sets, because each value becomes a metric's label."""

from __future__ import annotations

import enum

__all__ = ["Reason"]


class Reason(enum.Enum):
    """What was wrong with bytes from a peer."""

    # a whole Message (the rest of it is dropped)
    MESSAGE_TOO_SHORT = "message_too_short"  # fewer octets than a header, or than the header's length
    MESSAGE_LENGTH_INVALID = "message_length_invalid"  # length field below the header's own size
    VERSION_UNSUPPORTED = "version_unsupported"
    SET_TOO_SHORT = "set_too_short"  # set length below 4
    SET_TOO_LONG = "set_too_long"  # set length past the Message's end
    # one Template Record (its Set is read on, unless it is truncated or its id reserved)
    TEMPLATE_TRUNCATED = "template_truncated"
    TEMPLATE_ID_RESERVED = "template_id_reserved"  # below 256
    TEMPLATE_EMPTY = "template_empty"  # no octet in any record: data would never end
    TEMPLATE_TOO_LARGE = "template_too_large"  # over the limit of fields
    TEMPLATE_SCOPE_INVALID = "template_scope_invalid"
    TEMPLATE_LIMIT = "template_limit"  # over the session's limit of Templates
    # strict mode only
    ELEMENT_UNKNOWN = "element_unknown"
    # one Data Set (the rest of that Set is dropped)
    TEMPLATE_UNKNOWN = "template_unknown"
    RECORD_TRUNCATED = "record_truncated"  # a variable length runs past the Set's end
    SET_ID_RESERVED = "set_id_reserved"  # 0, 1, 4-255: skipped by length
    # a byte stream or a file (it cannot be read further)
    STREAM_DESYNCHRONISED = "stream_desynchronised"
    FILE_TRUNCATED = "file_truncated"
    FILE_FORMAT_UNKNOWN = "file_format_unknown"
    # limits on peers
    SESSION_LIMIT = "session_limit"
    HELD_LIMIT = "held_limit"  # early data that found no room to wait for its Template
    # a TLS handshake (the connection is closed)
    TLS_CERTIFICATE_MISSING = "tls_certificate_missing"
    TLS_CERTIFICATE_UNTRUSTED = "tls_certificate_untrusted"  # not of the authorities we trust
    TLS_CERTIFICATE_EXPIRED = "tls_certificate_expired"
    TLS_CERTIFICATE_NOT_YET_VALID = "tls_certificate_not_yet_valid"
    TLS_CERTIFICATE_PURPOSE = "tls_certificate_purpose"  # not for clients
    TLS_CERTIFICATE_INVALID = "tls_certificate_invalid"  # whatever else verification minds
    TLS_REFUSED_BY_PEER = "tls_refused_by_peer"  # the client minds our certificate
    TLS_VERSION_UNSUPPORTED = "tls_version_unsupported"
    TLS_NOT_SPOKEN = "tls_not_spoken"
    TLS_HANDSHAKE_FAILED = "tls_handshake_failed"  # no cipher in common, and the like
    TLS_HANDSHAKE_CUT = "tls_handshake_cut"  # the connection ended in it
    TLS_HANDSHAKE_TIMEOUT = "tls_handshake_timeout"
    TLS_HANDSHAKE_LIMIT = "tls_handshake_limit"  # it gave its place to one that waited
