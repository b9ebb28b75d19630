"""Secrets that cannot be read now: at a start that is worth a word, because they are read at each use; blocking."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from flowjoin._config.fields import fields_of
from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Secret
from flowjoin.api._types import Remark

__all__ = ["unread_secrets"]


def unread_secrets(settings: Any) -> Iterator[Remark]:
    """Why each file of a configuration dataclass's secrets cannot be read, with the key's path.

    Of variables nothing is said: they are where the program runs, and not where its file is checked.
    """
    for spec in fields_of(type(settings)):
        value = getattr(settings, spec.name)
        if isinstance(value, Secret) and value.is_file:
            try:
                value.reveal()
            except ConfigError as exc:
                yield Remark(problem=exc.problem, path=spec.key)
        elif dataclasses.is_dataclass(value) and not hasattr(value, "from_text"):
            for inner in unread_secrets(value):
                yield Remark(problem=inner.problem, path=f"{spec.key}.{inner.path}")
