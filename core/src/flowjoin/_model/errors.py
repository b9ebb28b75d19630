"""The one error tree: the type decides what happens, attributes carry the facts."""

from __future__ import annotations

from collections.abc import Sequence

from flowjoin._model.reasons import Reason

__all__ = [
    "BindError",
    "ConfigError",
    "DecodeError",
    "DestinationError",
    "EncodeError",
    "FlowjoinError",
    "PermanentExportError",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "RetryableExportError",
    "said_by",
]


def said_by(error: BaseException) -> str:
    """An error's text; a class of a plugin's may fail to give one, which must not hide the error itself."""
    try:
        return str(error)
    except Exception as exc:  # noqa: BLE001 - whatever a foreign __str__ raises
        return f"no text, because its __str__ raised {type(exc).__name__}"


class FlowjoinError(Exception):
    """Root of every error that flowjoin raises on purpose."""


class ConfigError(FlowjoinError):
    """The operator's configuration cannot be used; nothing has been bound yet.

    Attributes:
        problem: one sentence: what is wrong with which value, and what would be right.
        path: the key as the operator reads it, ``exporters[1].endpoint``; empty for the whole file.
        line: line of the key in the file, from 1; None when there is no file.
        source: the file's name; None when there is no file.
    """

    def __init__(self, problem: str, *, path: str = "", line: int | None = None, source: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.line = line
        self.source = source

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line) if part is not None)
        return ": ".join(part for part in (place, self.path, self.problem) if part)


class BindError(FlowjoinError):
    """An address we were told to listen on cannot be had; the run ends with exit code 1.

    Attributes:
        address: as the operator wrote it.
    """

    def __init__(self, problem: str, *, address: str) -> None:
        super().__init__(problem)
        self.address = address


class DestinationError(FlowjoinError):
    """A collector that a command was told to send to cannot be reached, or went away; exit code 1.

    Attributes:
        address: as the operator wrote it.
    """

    def __init__(self, problem: str, *, address: str) -> None:
        super().__init__(problem)
        self.address = address


class PluginError(FlowjoinError):
    """A plugin cannot be used.

    Attributes:
        plugin: the entry point's name, which is the ``type`` written in the configuration.
        distribution: the installed distribution that brings it; empty when none was found.
        version: that distribution's version.
    """

    def __init__(self, problem: str, *, plugin: str, distribution: str = "", version: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.plugin = plugin
        self.distribution = distribution
        self.version = version

    def __str__(self) -> str:
        origin = f" (distribution {self.distribution} {self.version})" if self.distribution else ""
        return f"plugin {self.plugin!r}{origin}: {self.problem}"


class PluginLoadError(PluginError):
    """The plugin is missing, there is more than one of its name, or its import failed."""


class PluginContractError(PluginError):
    """The plugin loaded and then broke the contract it signed."""


class DecodeError(FlowjoinError):
    """Bytes from a peer that are not what the protocol allows.

    Attributes:
        reason: what was wrong, from a closed set, because it becomes a metric's label.
        offset: octets from the beginning of the Message (or file) to the fault.
        path: where in the structure, outermost first: ``("set 2", "template 256")``.
    """

    def __init__(self, reason: Reason, *, offset: int, path: Sequence[str] = ()) -> None:
        super().__init__(f"{reason.value} at octet {offset}")
        self.reason = reason
        self.offset = offset
        self.path = tuple(path)


class EncodeError(FlowjoinError):
    """A value that its element's abstract data type cannot carry, or a Message over its limit.

    Attributes:
        element: name of the element; empty when the Message as a whole is at fault.
    """

    def __init__(self, problem: str, *, element: str = "") -> None:
        super().__init__(f"{element}: {problem}" if element else problem)
        self.element = element


class RetryableExportError(FlowjoinError):
    """The destination cannot take the batch now; the same batch comes again after back-off.

    Attributes:
        retry_after: seconds the destination asked for; None leaves it to the lane.
    """

    def __init__(self, problem: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


class PermanentExportError(FlowjoinError):
    """The destination will never take these rows; the others were accepted.

    Attributes:
        rows: indices into the batch; None means all of them.
    """

    def __init__(self, problem: str = "", *, rows: Sequence[int] | None = None) -> None:
        super().__init__(problem)
        self.rows = None if rows is None else tuple(rows)
