"""One captured frame, and the limit on its size."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MAX_FRAME_OCTETS", "Frame"]

MAX_FRAME_OCTETS: Final = 262_144
"""The largest snapshot length that libpcap writes; a larger frame means that we lost our place in the file."""


class Frame(NamedTuple):
    """What an interface saw at one time.

    Attributes:
        time: seconds since the Unix epoch.
        link_type: a LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        octets: from the link layer's header on, as far as they were captured.
    """

    time: float
    link_type: int
    octets: bytes
