"""Which Template a batch's rows have, under which id.

256 and 257 are the IPv4 and IPv6 flows of the configured kind, always both; those of a source that counts nothing have
a Template without counters, but for an agent's. Plain flows have the Template of their
own columns, 258 and 259; a schema that comes besides these gets the next id. An id means the same for as long as
the exporter is open, over all its connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowjoin.api import AddressFamily, ElementRegistry, FlowOrigin, FlowSchema
from flowjoin.wire import FieldSpecifier, Template, TemplateId
from flowjoin_ipfix._elements import SWITCHED_BY_NAMES, SWITCHED_BY_UIDS, TemplateKind, element_names, known_names

__all__ = ["TemplateBook", "lacks_counters"]

_IPFIX: Final = 10
_IDS: Final = {
    (False, AddressFamily.IPV4): 256,
    (False, AddressFamily.IPV6): 257,
    (True, AddressFamily.IPV4): 258,
    (True, AddressFamily.IPV6): 259,
}
_FIRST_OTHER_ID: Final = 260
_COUNTERS: Final = frozenset(
    f"{what}{kind}Count" for what in ("packet", "octet", "reversePacket", "reverseOctet") for kind in ("Total", "Delta")
)


def lacks_counters(schema: FlowSchema) -> bool:
    """Whether nobody counted packets and octets of these flows; that is not the same as zero."""
    return schema.origin is FlowOrigin.SOURCE and _COUNTERS.isdisjoint(schema.names)


class TemplateBook:
    """All Templates of one exporter."""

    def __init__(
        self,
        registry: ElementRegistry,
        kind: TemplateKind,
        *,
        compatibility: str,
        names: bool = True,
        uids: bool = False,
        extra: bool = False,
    ) -> None:
        self._base = {
            family: element_names(kind, family, compatibility=compatibility, names=names, uids=uids)
            for family in AddressFamily
        }
        self._kind = kind
        self._names = names
        self._uids = uids
        self._has_extra = extra
        self._by_elements: dict[tuple[bool, AddressFamily, tuple[str, ...]], Template] = {}
        self._next_id = _FIRST_OTHER_ID
        self._taken: set[int] = set()
        self._told: set[str] = set()
        if not extra:
            for family in AddressFamily:
                self._template(False, family, self._base[family], registry)

    @property
    def templates(self) -> Sequence[Template]:
        """Every Template so far, by id."""
        return sorted(self._by_elements.values(), key=lambda template: template.template_id)

    def template_of(self, schema: FlowSchema) -> Template:
        """The Template of a schema's rows; a new one where its like was not seen before."""
        if schema.origin is FlowOrigin.PLAIN:
            return self._template(True, schema.family, schema.names, schema.registry)
        base = self._base[schema.family]
        if self._kind != "agent" and lacks_counters(schema):
            # Of an agent's collector every record has them: there they are zero.
            base = tuple(name for name in base if name not in _COUNTERS)
        if not self._has_extra:
            return self._template(False, schema.family, base, schema.registry)
        extra = self._extra(schema)
        template = self._template(False, schema.family, (*base, *extra), schema.registry)
        # Both families' Templates are always there; the columns that a configuration adds are the same in both.
        twin = AddressFamily.IPV6 if schema.family is AddressFamily.IPV4 else AddressFamily.IPV4
        if _IDS[False, twin] not in self._taken:
            added = (name for name in extra if name not in known_names(schema.family))
            self._template(False, twin, (*self._base[twin], *added), schema.registry)
        return template

    def untold(self, schema: FlowSchema) -> tuple[str, ...]:
        """Elements that rows of this schema have and no collector will see; each is given once."""
        if schema.origin is FlowOrigin.PLAIN or self._has_extra:
            return ()
        left_out = [name for name in schema.names if name not in known_names(schema.family) and name not in self._told]
        self._told.update(left_out)
        return tuple(left_out)

    def _extra(self, schema: FlowSchema) -> list[str]:
        left_out: frozenset[str] = frozenset(self._base[schema.family])
        if not self._names:
            left_out |= SWITCHED_BY_NAMES
        if not self._uids:
            left_out |= SWITCHED_BY_UIDS
        return [name for name in schema.names if name not in left_out]

    def _template(
        self, is_plain: bool, family: AddressFamily, names: Iterable[str], registry: ElementRegistry
    ) -> Template:
        key = (is_plain, family, tuple(names))
        template = self._by_elements.get(key)
        if template is None:
            elements = [registry.by_name(name) for name in key[2]]
            template = Template(
                version=_IPFIX,
                template_id=TemplateId(self._free_id(is_plain, family)),
                fields=tuple(FieldSpecifier(element, element.length) for element in elements),
            )
            self._by_elements[key] = template
        return template

    def _free_id(self, is_plain: bool, family: AddressFamily) -> int:
        template_id = _IDS[is_plain, family]
        if template_id in self._taken:
            template_id = self._next_id
            self._next_id += 1
        self._taken.add(template_id)
        return template_id
