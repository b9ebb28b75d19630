"""Template to plan, by element name: old agents, new agents and any other original exporter alike.

A Template that carries Antrea's flowType makes aggregated flows, any other one plain flows; in Proxy mode
both make rows as they came. Invariant: every field of a Template is moved, kept beside, dropped by name,
or padding; no element is fed twice.
"""

from __future__ import annotations

from typing import Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_schema import ADDRESS_ELEMENTS, AddressFamily, FlowOrigin
from flowjoin._model.inputs import ALIASES, inputs_of
from flowjoin._model.plan import Move, Plan
from flowjoin._model.schemas import FlowSchemas
from flowjoin._model.state_layout import Storage, storage_of
from flowjoin._model.template import FieldSpecifier, Template
from flowjoin.wire.records import carries_octets

__all__ = ["PlanCompiler"]

_FLOW_TYPE: Final = "flowType"
_PADDING: Final = "paddingOctets"  # RFC 7011 section 3.3.1 recommends it; nothing is lost with it


class PlanCompiler:
    """Makes the plan of each Template; pure, and the same plan for equal Templates."""

    def __init__(self, registry: ElementRegistry, schemas: FlowSchemas, *, is_proxy: bool = False) -> None:
        """Take what plans are made for.

        Args:
            registry: tells Antrea's flowType from another enterprise's element of that name.
            schemas: the columns, extra elements included.
            is_proxy: Proxy mode: records are passed on, not merged.
        """
        self._flow_type = registry.by_name(_FLOW_TYPE)
        self._is_proxy = is_proxy
        self._inputs = {
            origin: inputs_of(origin, schemas) for origin in (FlowOrigin.AGGREGATED, FlowOrigin.PLAIN, FlowOrigin.PROXY)
        }
        self._proxy_columns = frozenset(
            name for (origin, _), schema in schemas.items() if origin is FlowOrigin.PROXY for name in schema.names
        )

    def __call__(self, template: Template) -> Plan | None:
        """The plan; None for an Options Template, whose records are no flows."""
        if template.is_options:
            return None
        origin = self._origin(template)
        inputs = self._inputs[origin]
        moves: dict[str, int] = {}
        second_choice: list[tuple[str, int]] = []
        dropped: list[str] = []
        extra: dict[str, int] = {}
        for index, field in enumerate(template.fields):
            name = field.element.name
            if name == _PADDING:
                continue
            if name in moves or name in extra:
                dropped.append(name)  # of a repeated element the first counts
            elif name in inputs and _fits(field):
                moves[name] = index
                if self._is_proxy and name not in self._proxy_columns:
                    extra[name] = index
            elif self._is_proxy:
                extra[name] = index
            elif name in ALIASES:
                second_choice.append((name, index))
            else:
                dropped.append(name)
        for name, index in second_choice:
            element = ALIASES[name]
            if element in moves or not _fits(template.fields[index]):
                dropped.append(name)
            else:
                moves[element] = index
        has_ipv4, has_ipv6 = (all(name in moves for name in ADDRESS_ELEMENTS[family]) for family in AddressFamily)
        return Plan(
            origin=origin,
            has_ipv4=has_ipv4,
            has_ipv6=has_ipv6,
            moves=tuple(Move(index, element) for element, index in moves.items()),
            dropped=tuple(dropped),
            extra=tuple(extra.values()),
        )

    def _origin(self, template: Template) -> FlowOrigin:
        if self._is_proxy:
            return FlowOrigin.PROXY
        if any(field.element == self._flow_type for field in template.fields):
            return FlowOrigin.AGGREGATED
        return FlowOrigin.PLAIN


def _fits(field: FieldSpecifier) -> bool:
    """Whether records give a value that the element's place can hold."""
    if carries_octets(field):
        return False
    storage, _ = storage_of(field.element)
    return storage is not Storage.OCTETS or field.length in (0, field.element.length)
