"""Source plugin: the connections of this Node, from the kernel's connection tracking, as flows."""

from flowjoin.api import SourceType, hookimpl
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._open import open_conntrack

__all__ = ["ConntrackConfig", "flowjoin_source_types"]


@hookimpl
def flowjoin_source_types() -> list[SourceType]:
    """Hand over the type that ``type: conntrack`` stands for."""
    return [SourceType("conntrack", ConntrackConfig, open_conntrack, api_version=1)]
