"""What differs between two configurations, by keys: what a reload may change, and what waits for a restart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from flowjoin._config.fields import fields_of
from flowjoin._config.model import Config

__all__ = ["Changes", "applied", "compare"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Keys as an operator reads them, in the order of the reference.

    Attributes:
        live: to be applied now.
        fixed: cannot change while running; the old values stay.
    """

    live: tuple[str, ...]
    fixed: tuple[str, ...]


def compare(old: Config, new: Config) -> Changes:
    """The keys whose values differ; moved lines and comments are no difference."""
    found = list(_differences(old, new, prefix="", is_live=False))
    return Changes(
        live=tuple(key for key, is_live in found if is_live), fixed=tuple(key for key, is_live in found if not is_live)
    )


def applied(old: Config, new: Config) -> Config:
    """The configuration in force once the keys that may change have changed, and no other."""
    return cast(Config, _applied(old, new))


def _applied(old: Any, new: Any) -> Any:
    changed: dict[str, Any] = {}
    for spec in fields_of(type(old)):
        before, after = getattr(old, spec.name), getattr(new, spec.name)
        if spec.is_live:
            changed[spec.name] = after
        elif _is_group(before, after):
            changed[spec.name] = _applied(before, after)
    return dataclasses.replace(old, **changed)


def _is_group(before: object, after: object) -> bool:
    return dataclasses.is_dataclass(before) and type(before) is type(after) and not hasattr(before, "from_text")


def _differences(old: Any, new: Any, *, prefix: str, is_live: bool) -> Iterator[tuple[str, bool]]:
    for spec in fields_of(type(old)):
        before, after = getattr(old, spec.name), getattr(new, spec.name)
        if before == after:
            continue
        key, live = f"{prefix}{spec.key}", is_live or spec.is_live
        if _is_group(before, after):
            yield from _differences(before, after, prefix=f"{key}.", is_live=live)
        else:
            yield key, live
