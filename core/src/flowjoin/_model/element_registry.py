"""All Information Elements one program knows, by number and by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowjoin._model.information_element import (
    VARIABLE_LENGTH,
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
)

__all__ = ["ElementRegistry"]


class ElementRegistry:
    """An immutable set of elements with unique names and unique (enterprise, id) pairs."""

    def __init__(self, elements: Iterable[InformationElement]) -> None:
        """Take the elements.

        Raises:
            ValueError: two elements share a name or a number.
        """
        self._by_number: dict[tuple[int, int], InformationElement] = {}
        self._by_name: dict[str, InformationElement] = {}
        for element in elements:
            number = (element.enterprise_number, element.element_id)
            for table, key in ((self._by_number, number), (self._by_name, element.name)):
                if key in table:
                    raise ValueError(f"element {element.name} {number} meets another of the same {key}")
                table[key] = element  # type: ignore[index]  # the pair above keeps key and table together

    def __iter__(self) -> Iterator[InformationElement]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def by_name(self, name: str) -> InformationElement:
        """The element of that name.

        Raises:
            KeyError: no element has it.
        """
        return self._by_name[name]

    def get(self, enterprise_number: int, element_id: int) -> InformationElement | None:
        """The element of that number, or None."""
        return self._by_number.get((enterprise_number, element_id))

    def extended(self, extra: Iterable[InformationElement]) -> ElementRegistry:
        """A registry with these elements too.

        Raises:
            ValueError: a name or number is taken.
        """
        return ElementRegistry((*self, *extra))

    @staticmethod
    def unknown(enterprise_number: int, element_id: int, length: int = VARIABLE_LENGTH) -> InformationElement:
        """The stand-in for an element no registry has: octets under the name ``<enterprise>/<id>``."""
        return InformationElement(
            name=f"{enterprise_number}/{element_id}",
            element_id=ElementId(element_id),
            enterprise_number=EnterpriseNumber(enterprise_number),
            data_type=DataType.OCTET_ARRAY,
            length=length or VARIABLE_LENGTH,
        )
