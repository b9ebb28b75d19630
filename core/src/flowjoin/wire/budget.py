"""A bound that several owners share: what all sessions together may hold."""

from __future__ import annotations

__all__ = ["Budget"]


class Budget:
    """So many units, taken and given back."""

    __slots__ = ("limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, units: int) -> bool:
        """Take units if there are so many; give whether there were."""
        if self.taken + units > self.limit:
            return False
        self.taken += units
        return True

    def give_back(self, units: int) -> None:
        """Return units taken before."""
        self.taken -= units
