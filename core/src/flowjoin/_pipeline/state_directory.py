"""Where a flowjoin keeps what must outlive it, and who it is.

``lock`` keeps a second process out; ``instance-id`` and ``cluster-uuid`` are made once; ``cluster-uuid-told``
is what a cluster said of itself; ``epoch`` is raised, and on
the disk, before a batch gets an id, so that an id never names other rows. Each instance of a plugin has a directory
of its own below ``<list>/<name>``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from flowjoin._model.errors import ConfigError

__all__ = [
    "State",
    "existing_directory",
    "find_directory",
    "is_state_directory",
    "open_state",
    "refuse_no_directory",
    "write_durably",
]

_USUAL_PLACE: Final = Path("/var/lib/flowjoin")
_TOLD: Final = "cluster-uuid-told"
_PID_OCTETS: Final = 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_INSTANCE: Final = "instance-id"
_EPOCH: Final = "epoch"
_STATE_FILES: Final = (_INSTANCE, _EPOCH)  # what lies at the top of each


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known about this run.

    Attributes:
        directory: None when there is none: every start is another instance then.
        instance_id: names this installation.
        cluster_uuid: made here, for clusters that do not say theirs.
        epoch: differs at every start of an instance.
    """

    directory: Path | None
    instance_id: str
    cluster_uuid: str
    epoch: int

    def directory_of(self, kind: str, name: str) -> Path | None:
        """A plugin instance's own directory, made on first use.

        Raises:
            ConfigError: it cannot be made.
        """
        if self.directory is None:
            return None
        own = self.directory / kind / name
        try:
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise _unusable(self.directory, exc) from exc
        return own

    def last_epoch(self) -> int:
        """The last that this instance took, also by a later ``next_epoch``; blocking.

        Raises:
            OSError: it cannot be read.
            ValueError: what is there is no number.
        """
        if self.directory is None:
            return self.epoch
        return _epoch_in((self.directory / _EPOCH).read_text(encoding="ascii", errors="replace"))

    def told_as(self, cluster_uuid: str) -> State:
        """The same state in the cluster of that UUID, kept for starts at which the cluster cannot be asked; blocking.

        Raises:
            ConfigError: it cannot be written.
        """
        known = self.told_cluster_uuid()
        if self.directory is not None and (known is None or known.cluster_uuid != cluster_uuid):
            try:
                write_durably(self.directory / _TOLD, f"{cluster_uuid}\n".encode())
            except OSError as exc:
                raise _unusable(self.directory, exc) from exc
        return replace(self, cluster_uuid=cluster_uuid)

    def told_cluster_uuid(self) -> State | None:
        """The same state in the cluster that was last told; None where none ever was; blocking.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.directory is None or not (self.directory / _TOLD).exists():
            return None
        try:
            text = (self.directory / _TOLD).read_text(encoding="ascii").strip()
            return replace(self, cluster_uuid=str(uuid.UUID(text)))
        except OSError as exc:
            raise _unusable(self.directory, exc) from exc
        except ValueError:
            raise _damaged(self.directory / _TOLD, "a UUID") from None

    def next_epoch(self) -> State:
        """The same state with an epoch of its own, on the disk; blocking.

        Raises:
            ConfigError: it cannot be written.
        """
        if self.directory is None:
            return replace(self, epoch=self.epoch + 1)
        try:
            return replace(self, epoch=_raised_epoch(self.directory / _EPOCH, above=self.epoch))
        except OSError as exc:
            raise _unusable(self.directory, exc) from exc


def find_directory(configured: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The configured directory, else ``$STATE_DIRECTORY``, else the first usual place that can be written; or none.

    A directory that somebody named is given back even if it cannot be used: ``open_state`` says so.
    """
    named, usual = _places(configured, environment)
    if named is not None:
        return named
    for place in usual:
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(place, os.R_OK | os.W_OK | os.X_OK):
                return place
    return None


def existing_directory(configured: Path | None, environment: Mapping[str, str]) -> Path | None:
    """As ``find_directory``, but that nothing is made: None where there is no state yet."""
    named, usual = _places(configured, environment)
    places = usual if named is None else [named]
    return next((place for place in places if is_state_directory(place)), None)


def refuse_no_directory(configured: Path | None) -> None:
    """See to it that what is configured can be a directory; nothing is made.

    Raises:
        ConfigError: it, or something above it, is a file.
    """
    if configured is None:
        return
    try:
        there = next((place for place in (configured, *configured.parents) if place.exists()), None)
        is_directory = there is None or there.is_dir()
    except OSError:  # who checks may not look there; who runs it may
        return
    if not is_directory:
        problem = f"{there} is no directory; give the path of one, which may not be there yet"
        raise ConfigError(problem, path="stateDirectory")


def is_state_directory(folder: Path) -> bool:
    """Whether a flowjoin keeps its state there."""
    try:
        return all((folder / name).is_file() for name in _STATE_FILES)
    except OSError:  # what may not be looked into cannot be told
        return False


def _places(configured: Path | None, environment: Mapping[str, str]) -> tuple[Path | None, list[Path]]:
    """The directory that somebody named, or where it usually is."""
    if configured is not None:
        return configured, []
    if named := environment.get("STATE_DIRECTORY", "").split(":")[0]:  # systemd separates several by colons
        return Path(named), []
    home = environment.get("XDG_STATE_HOME")
    return None, [_USUAL_PLACE, *([Path(home) / "flowjoin"] if home else [])]


@contextlib.contextmanager
def open_state(directory: Path | None) -> Iterator[State]:
    """Lock the directory, and raise its epoch, on the disk.

    Raises:
        ConfigError: it cannot be used, or another process uses it.
    """
    if directory is None:
        yield State(directory=None, instance_id=uuid.uuid4().hex, cluster_uuid=str(uuid.uuid4()), epoch=1)
        return
    with contextlib.ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(_locked(directory))
            if not (directory / _EPOCH).exists():
                # Which epochs the instance had is not known, if it had any: ids of a new one name no other rows.
                (directory / _INSTANCE).unlink(missing_ok=True)
            state = State(
                directory=directory,
                instance_id=_made_once(directory / _INSTANCE, uuid.uuid4().hex),
                cluster_uuid=_made_once(directory / "cluster-uuid", str(uuid.uuid4())),
                epoch=_raised_epoch(directory / _EPOCH),
            )
        except (OSError, UnicodeError) as exc:  # UnicodeError: letters that the system's file names do not have
            raise _unusable(directory, exc) from exc
        yield state


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with open(directory / "lock", "r+b", opener=_opened_or_made) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read(_PID_OCTETS).decode("ascii", errors="replace").strip()
            who = f"process {owner}" if owner.isdigit() else "another process"
            problem = f"{directory} is in use by {who}: stop it, or give each its own stateDirectory"
            raise ConfigError(problem, path="stateDirectory") from None
        with contextlib.suppress(OSError):  # a full disk: it is only for people
            os.pwrite(file.fileno(), f"{os.getpid()}\n".ljust(_PID_OCTETS).encode(), 0)
        yield


def _opened_or_made(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o644)


def _made_once(path: Path, fresh: str) -> str:
    if not path.exists():
        write_durably(path, f"{fresh}\n".encode())
    try:
        text = path.read_text(encoding="ascii").strip()
        uuid.UUID(text)
    except ValueError:
        raise _damaged(path, "a UUID") from None
    return text


def _raised_epoch(path: Path, *, above: int = 0) -> int:
    """The next one, on the disk: above the one that is there, and above one that this run had."""
    epoch, is_known = above + 1, path.exists()
    if is_known:
        try:
            epoch = max(epoch, _epoch_in(path.read_text(encoding="ascii", errors="replace")) + 1)
        except ValueError:
            raise _damaged(path, "a number with its checksum") from None
    octets = _epoch_line(epoch).encode()
    try:
        write_durably(path, octets)
    except OSError as exc:
        if exc.errno not in _FULL or not is_known:
            raise
        _overwrite(path, octets)
    return epoch


def _epoch_line(epoch: int) -> str:
    """With a checksum, because a digit that changed would be another epoch, whose ids other rows may have."""
    return f"{epoch} {zlib.crc32(b'%d' % epoch):08x}\n"


def _epoch_in(text: str) -> int:
    """What a line says; also one without a checksum, as a person may write it.

    Raises:
        ValueError: it is damaged.
    """
    number = text.split(" ")[0].rstrip("\n")
    if not (number.isascii() and number.isdigit()):
        raise ValueError("no number")
    epoch = int(number)
    if text not in (_epoch_line(epoch), f"{epoch}\n"):
        raise ValueError("it is cut short, or an octet has changed")
    return epoch


def _overwrite(path: Path, octets: bytes) -> None:
    """Where the old octets are, which a full disk has room for: whoever empties the spool must be able to start."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, octets, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, octets: bytes) -> None:
    """Whole or not at all, and on the disk before we go on; one call at a time for a path.

    What a process that was killed had begun is written over by the next one.
    """
    temporary = path.with_name(f".{path.name}-new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before is to be told
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _damaged(path: Path, what: str) -> ConfigError:
    problem = f"{path} does not hold {what}: restore it, or remove it, and another is made"
    return ConfigError(problem, path="stateDirectory")


def _unusable(directory: Path, exc: OSError | UnicodeError) -> ConfigError:
    cause = (isinstance(exc, OSError) and exc.strerror) or str(exc)
    return ConfigError(f"{directory} cannot be used: {cause}", path="stateDirectory")
