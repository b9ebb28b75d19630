"""Reads a page of a list item by item, so that a page of megabytes is no step of the loop.

Invariant: the items and the metadata are those that ``json.loads`` of the whole page gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from typing import Any, Final

__all__ = ["Page"]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


class Page:
    """One page: iterate it, then read what stands beside the items.

    Attributes:
        resource_version: of the list; known when all items were read, as is the next.
        continue_token: asks for the next page; empty at the last one.
    """

    def __init__(self, body: bytes) -> None:
        """Take the page's octets.

        Raises:
            ValueError: they are no UTF-8.
        """
        self._text = body.decode()
        self.resource_version = ""
        self.continue_token = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The items.

        Raises:
            ValueError: it is no list of the API's.
        """
        at = self._expect("{", 0)
        metadata: object = None
        while True:
            key, at = self._value(at)
            at = self._expect(":", at)
            if key == "items" and self._text[at : at + 1] == "[":
                at = yield from self._items(at + 1)
            else:
                value, at = self._value(at)
                metadata = value if key == "metadata" else metadata
            if self._text[at : at + 1] != ",":
                break
            at = self._skip(at + 1)
        if self._expect("}", at) != len(self._text) or not isinstance(metadata, dict):
            raise ValueError("the answer is no list")
        self.resource_version = str(metadata.get("resourceVersion") or "")
        self.continue_token = str(metadata.get("continue") or "")

    def _items(self, at: int) -> Generator[dict[str, Any], None, int]:
        at = self._skip(at)
        if self._text[at : at + 1] == "]":
            return self._skip(at + 1)
        while True:
            item, at = self._value(at)
            if not isinstance(item, dict):
                raise ValueError("an item of the list is no object")
            yield item
            if self._text[at : at + 1] != ",":
                return self._expect("]", at)
            at = self._skip(at + 1)

    def _value(self, at: int) -> tuple[Any, int]:
        value, end = _DECODER.raw_decode(self._text, at)
        return value, self._skip(end)

    def _expect(self, character: str, at: int) -> int:
        at = self._skip(at)
        if self._text[at : at + 1] != character:
            raise ValueError(f"the answer is no JSON object: {character!r} is missing at {at}")
        return self._skip(at + 1)

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self._text, at)
        assert space is not None, "it matches nothing too"
        return space.end()
