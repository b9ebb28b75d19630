"""Which columns a batch has: one schema per origin and address family."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.information_element import InformationElement

__all__ = ["ADDRESS_ELEMENTS", "AddressFamily", "FlowOrigin", "FlowSchema"]


class FlowOrigin(enum.Enum):
    """Where the rows of a batch come from; each origin has its own columns."""

    AGGREGATED = "aggregated"  # records whose Template carries flowType (Antrea): two halves, joined
    PLAIN = "plain"  # any other record: one original exporter's flow, merged over time
    PROXY = "proxy"  # records as they came, in Proxy mode
    SOURCE = "source"  # made by a source plugin


class AddressFamily(enum.IntEnum):
    """IP version, which is also the value."""

    IPV4 = 4
    IPV6 = 6


# The two ends of a flow.
ADDRESS_ELEMENTS: Final[Mapping[AddressFamily, tuple[str, str]]] = {
    AddressFamily.IPV4: ("sourceIPv4Address", "destinationIPv4Address"),
    AddressFamily.IPV6: ("sourceIPv6Address", "destinationIPv6Address"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSchema:
    """Origin, family and the elements of every row, in column order.

    Attributes:
        elements: distinct names; order is the order of columns.
        registry: knows every element by name, also those that are not columns.
    """

    origin: FlowOrigin
    family: AddressFamily
    elements: tuple[InformationElement, ...]
    registry: ElementRegistry = field(compare=False, repr=False)
    _positions: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        positions = {element.name: index for index, element in enumerate(self.elements)}
        assert len(positions) == len(self.elements), "a schema names each element once"
        object.__setattr__(self, "_positions", positions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._positions)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def position(self, name: str) -> int:
        """Column number of an element.

        Raises:
            KeyError: the element is not a column.
        """
        return self._positions[name]
