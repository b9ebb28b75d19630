"""Information Elements and the Python values they carry (RFC 7011 section 6, RFC 7012 section 3).

One representation of values holds everywhere: in wire events, in batches, in plugins.

========================================  ==========================================
abstract data type                        Python value
========================================  ==========================================
unsigned8..64, signed8..64                int
float32, float64                          float
boolean                                   bool
string                                    str (octets that are not UTF-8 become U+FFFD)
octetArray, the three list types          bytes
ipv4Address, ipv6Address, macAddress      str, canonical text (RFC 5952; ``::ffff:192.0.2.1``)
dateTimeSeconds .. dateTimeNanoseconds    int, in that unit, since 1970-01-01T00:00:00Z
========================================  ==========================================
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NewType, TypeAlias

__all__ = [
    "VARIABLE_LENGTH",
    "DataType",
    "ElementId",
    "EnterpriseNumber",
    "InformationElement",
    "MergeRule",
    "Value",
]

ElementId = NewType("ElementId", int)
EnterpriseNumber = NewType("EnterpriseNumber", int)
Value: TypeAlias = int | float | bool | str | bytes

VARIABLE_LENGTH: Final = 65535  # RFC 7011 section 7


class DataType(enum.Enum):
    """Abstract data types (RFC 7012 section 3.1, RFC 6313 for the lists), by their registry names."""

    OCTET_ARRAY = "octetArray"
    UNSIGNED8 = "unsigned8"
    UNSIGNED16 = "unsigned16"
    UNSIGNED32 = "unsigned32"
    UNSIGNED64 = "unsigned64"
    SIGNED8 = "signed8"
    SIGNED16 = "signed16"
    SIGNED32 = "signed32"
    SIGNED64 = "signed64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    MAC_ADDRESS = "macAddress"
    STRING = "string"
    DATE_TIME_SECONDS = "dateTimeSeconds"
    DATE_TIME_MILLISECONDS = "dateTimeMilliseconds"
    DATE_TIME_MICROSECONDS = "dateTimeMicroseconds"
    DATE_TIME_NANOSECONDS = "dateTimeNanoseconds"
    IPV4_ADDRESS = "ipv4Address"
    IPV6_ADDRESS = "ipv6Address"
    BASIC_LIST = "basicList"
    SUB_TEMPLATE_LIST = "subTemplateList"
    SUB_TEMPLATE_MULTI_LIST = "subTemplateMultiList"

    @property
    def natural_length(self) -> int:
        """Octets of a value in full size; VARIABLE_LENGTH where the type has no fixed size."""
        return _NATURAL_LENGTHS.get(self, VARIABLE_LENGTH)

    @property
    def default(self) -> Value:
        """The value an absent element has."""
        return _DEFAULTS.get(self, 0)


_NATURAL_LENGTHS: Final = {
    DataType.UNSIGNED8: 1,
    DataType.UNSIGNED16: 2,
    DataType.UNSIGNED32: 4,
    DataType.UNSIGNED64: 8,
    DataType.SIGNED8: 1,
    DataType.SIGNED16: 2,
    DataType.SIGNED32: 4,
    DataType.SIGNED64: 8,
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.BOOLEAN: 1,
    DataType.MAC_ADDRESS: 6,
    DataType.DATE_TIME_SECONDS: 4,
    DataType.DATE_TIME_MILLISECONDS: 8,
    DataType.DATE_TIME_MICROSECONDS: 8,
    DataType.DATE_TIME_NANOSECONDS: 8,
    DataType.IPV4_ADDRESS: 4,
    DataType.IPV6_ADDRESS: 16,
}

_DEFAULTS: Final[dict[DataType, Value]] = {
    DataType.OCTET_ARRAY: b"",
    DataType.BASIC_LIST: b"",
    DataType.SUB_TEMPLATE_LIST: b"",
    DataType.SUB_TEMPLATE_MULTI_LIST: b"",
    DataType.FLOAT32: 0.0,
    DataType.FLOAT64: 0.0,
    DataType.BOOLEAN: False,
    DataType.MAC_ADDRESS: "00:00:00:00:00:00",
    DataType.STRING: "",
    DataType.IPV4_ADDRESS: "0.0.0.0",  # noqa: S104 - an element's default, nothing is bound
    DataType.IPV6_ADDRESS: "::",
}


class MergeRule(enum.Enum):
    """How a later record's value meets the stored one: the closed set of rules."""

    KEY = "key"  # part of the flow key
    FIRST = "first"  # the first record's value stays
    LATEST = "latest"  # taken from each record that ends no earlier than the flow
    MAX = "max"
    SUM = "sum"  # adds up between two exports
    PER_SIDE = "per_side"  # one value per reporting side, kept by the core
    FILL = "fill"  # a value that says something replaces the stored one when halves are joined
    COMPUTED = "computed"  # by the core


@dataclass(frozen=True, slots=True, kw_only=True)
class InformationElement:
    """One row of a registry.

    Attributes:
        name: IANA name, verbatim; an unknown element is named ``<enterprise>/<id>``, decimal.
        element_id: without the enterprise bit.
        enterprise_number: 0 for IANA's own.
        data_type: abstract data type.
        length: octets on the wire when we send it; VARIABLE_LENGTH for strings. A fixed-size
            octetArray has its size here.
        semantics: RFC 7012 section 3.2 (``deltaCounter``, ``totalCounter``, ``identifier``, …).
        units: as in the registry; empty without.
        merge_rule: for an extra element in a flow; None follows the semantics: deltaCounter sums,
            totalCounter takes the maximum, everything else takes the latest value.
    """

    name: str
    element_id: ElementId
    data_type: DataType
    enterprise_number: EnterpriseNumber = EnterpriseNumber(0)
    length: int = 0
    semantics: str = ""
    units: str = ""
    merge_rule: MergeRule | None = None

    def __post_init__(self) -> None:
        if self.length == 0:
            object.__setattr__(self, "length", self.data_type.natural_length)

    @property
    def default(self) -> Value:
        """The value that stands where a record does not have the element (never null)."""
        if self.data_type is DataType.OCTET_ARRAY and self.length != VARIABLE_LENGTH:
            return bytes(self.length)
        return self.data_type.default
