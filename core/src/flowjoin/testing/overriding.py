"""A test of a kit is overridden only by a written-down failure."""

from __future__ import annotations

__all__ = ["refuse_silent_overrides"]


def refuse_silent_overrides(cls: type, kit: type) -> None:
    """Look at a subclass of a kit.

    Raises:
        TypeError: it overrides a test without ``xfail(strict=True, reason=…)``.
    """
    for name in vars(cls):
        if name.startswith("test_") and hasattr(kit, name) and not _is_written_down(vars(cls)[name]):
            raise TypeError(
                f"{cls.__name__}.{name} may be overridden only with pytest.mark.xfail(strict=True, reason=…)"
            )


def _is_written_down(test: object) -> bool:
    return any(
        mark.name == "xfail" and mark.kwargs.get("strict") is True and mark.kwargs.get("reason")
        for mark in getattr(test, "pytestmark", [])
    )
