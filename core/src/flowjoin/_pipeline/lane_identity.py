"""What the batches of a lane are called."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LaneIdentity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """Makes ids that never name other rows: the epoch differs at every start of an instance."""

    instance_id: str
    lane: str
    epoch: int

    def batch_id(self, sequence: int) -> str:
        """The id of the lane's n-th batch."""
        return f"{self.instance_id}/{self.lane}/{self.epoch}/{sequence}"
