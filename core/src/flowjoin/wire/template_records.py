"""Template and Options Template Records (RFC 7011 sections 3.4.1, 3.4.2 and 8.1): octets to ``Template``.

Strategy: first find where a record ends, then look its octets up among those read before: exporters
repeat their Templates, and many exporters send the same ones. Only new octets are read field by field.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin.wire.records import RecordDecoder

__all__ = ["CompiledTemplate", "Mode", "TemplateReader", "record_end"]

Mode: TypeAlias = Literal["lenient", "strict"]

_TWO_NUMBERS: Final = struct.Struct(">HH")
_NUMBER: Final = struct.Struct(">H")
_ENTERPRISE_NUMBER: Final = struct.Struct(">I")
_ENTERPRISE_BIT: Final = 0x8000
# Template Records kept for sharing, and the size up to which; peers choose them, so both are bounded.
_REMEMBERED: Final = 1_024
_REMEMBERED_OCTETS: Final = 1_024  # about 128 elements with an enterprise number


class CompiledTemplate:
    """A Template and the decoder of its records, compiled when the first data comes."""

    __slots__ = ("_records", "template")

    def __init__(self, template: Template) -> None:
        self.template = template
        self._records: RecordDecoder | None = None

    @property
    def records(self) -> RecordDecoder:
        if self._records is None:
            self._records = RecordDecoder(self.template.fields)
        return self._records


def record_end(data: bytes, start: int, end: int, *, is_options: bool) -> int | None:
    """Where the record that begins at ``start`` ends; None if that is not before ``end``.

    At least the record's id and field count, four octets, must be there.
    """
    count = _NUMBER.unpack_from(data, start + 2)[0]
    at = start + (6 if is_options else 4)
    for _ in range(count):
        if at + 4 > end:
            return None
        at += 8 if data[at] & 0x80 else 4
    return at if at <= end else None


class TemplateReader:
    """Makes Templates of Template Records."""

    def __init__(self, registry: ElementRegistry, *, mode: Mode, max_fields: int) -> None:
        self._registry = registry
        self._mode = mode
        self._max_fields = max_fields
        self._remembered: dict[tuple[int, bool, bytes], CompiledTemplate] = {}

    def read(self, data: bytes, start: int, end: int, *, version: int, is_options: bool) -> CompiledTemplate:
        """Read the record ``data[start:end]``, whose end ``record_end`` found.

        Raises:
            DecodeError: no data can be read by this Template, or it is not wanted.
        """
        key = (version, is_options, data[start:end])
        known = self._remembered.get(key)
        if known is not None:
            return known
        compiled = CompiledTemplate(self._read(data, start, version=version, is_options=is_options))
        if end - start <= _REMEMBERED_OCTETS:
            if len(self._remembered) >= _REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[key] = compiled
        return compiled

    def _read(self, data: bytes, start: int, *, version: int, is_options: bool) -> Template:
        template_id, count = _TWO_NUMBERS.unpack_from(data, start)
        path = (f"set {3 if is_options else 2}", f"template {template_id}")
        if count > self._max_fields:
            raise DecodeError(Reason.TEMPLATE_TOO_LARGE, offset=start + 2, path=path)
        at = start + 4
        scope_field_count = 0
        if is_options:
            scope_field_count = _NUMBER.unpack_from(data, at)[0]
            if not 1 <= scope_field_count <= count:  # RFC 7011 section 3.4.2.2: never zero
                raise DecodeError(Reason.TEMPLATE_SCOPE_INVALID, offset=at, path=path)
            at += 2
        fields: list[FieldSpecifier] = []
        for index in range(count):
            field, after = self._read_field(data, at)
            if not field.is_known and self._mode == "strict":
                raise DecodeError(Reason.ELEMENT_UNKNOWN, offset=at, path=(*path, f"field {index}"))
            fields.append(field)
            at = after
        template = Template(
            version=version,
            template_id=TemplateId(template_id),
            fields=tuple(fields),
            is_options=is_options,
            scope_field_count=scope_field_count,
        )
        if template.minimum_record_length == 0:
            raise DecodeError(Reason.TEMPLATE_EMPTY, offset=start, path=path)
        return template

    def _read_field(self, data: bytes, at: int) -> tuple[FieldSpecifier, int]:
        element_id, length = _TWO_NUMBERS.unpack_from(data, at)
        enterprise_number = 0
        at += 4
        if element_id & _ENTERPRISE_BIT:
            element_id -= _ENTERPRISE_BIT
            enterprise_number = _ENTERPRISE_NUMBER.unpack_from(data, at)[0]
            at += 4
        element = self._registry.get(enterprise_number, element_id)
        if element is not None:
            return FieldSpecifier(element, length), at
        unknown = self._registry.unknown(enterprise_number, element_id, length)
        return FieldSpecifier(unknown, length, is_known=False), at
