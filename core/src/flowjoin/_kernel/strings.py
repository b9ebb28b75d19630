"""Strings and octets of any length, each held once and known by a number.

Invariant: a number is held as often as it was acquired and not yet released; what nothing holds is gone,
and its number is given again. Number 0 is the empty string (and the empty octets), which costs nothing.
"""

from __future__ import annotations

from typing import Final

from flowjoin._model.information_element import Value

__all__ = ["EMPTY", "Strings"]

EMPTY: Final = 0


class Strings:
    """A bounded, reference-counted table of distinct strings and octets.

    Attributes:
        octets: of all distinct values now held.
        dropped: values stored empty because there was no room.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text_numbers: dict[str, int] = {}
        self._octet_numbers: dict[bytes, int] = {}  # apart: "a" and b"a" are two values
        self._values: list[str | bytes] = [""]
        self._holders: list[int] = [1]
        self._free: list[int] = []
        self.octets = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._text_numbers) + len(self._octet_numbers)

    def __getitem__(self, number: int) -> str | bytes:
        return self._values[number]

    def acquire(self, value: Value) -> int:
        """The number of a value, held once more; ``EMPTY`` if there is no room for a new one."""
        if not value:
            return EMPTY
        if isinstance(value, str):
            number = self._text_numbers.get(value)
        else:
            assert isinstance(value, bytes), "only strings and octets are interned"
            number = self._octet_numbers.get(value)
        if number is not None:
            self._holders[number] += 1
            return number
        return self._add(value)

    def release(self, number: int) -> None:
        """Hold a value once less."""
        if number == EMPTY:
            return
        self._holders[number] -= 1
        if self._holders[number]:
            return
        value = self._values[number]
        if isinstance(value, str):
            del self._text_numbers[value]
        else:
            del self._octet_numbers[value]
        self._values[number] = ""
        self._free.append(number)
        self.octets -= _octets_of(value)

    def _add(self, value: str | bytes) -> int:
        octets = _octets_of(value)
        if self.octets + octets > self._limit:
            self.dropped += 1
            return EMPTY
        self.octets += octets
        if self._free:
            number = self._free.pop()
            self._values[number] = value
            self._holders[number] = 1
        else:
            number = len(self._values)
            self._values.append(value)
            self._holders.append(1)
        if isinstance(value, str):
            self._text_numbers[value] = number
        else:
            self._octet_numbers[value] = number
        return number


def _octets_of(value: str | bytes) -> int:
    if isinstance(value, bytes) or value.isascii():
        return len(value)
    return len(value.encode("utf-8", "surrogatepass"))
