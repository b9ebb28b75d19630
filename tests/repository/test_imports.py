"""The import direction of the core: a room imports only from the rooms below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
CORE = REPOSITORY / "core" / "src" / "flowjoin"

# Each room may import itself, the rooms named here, and what those may import.
BELOW = {
    "_model": set(),
    "wire": {"_model"},
    "_kernel": {"wire"},
    "_telemetry": {"_kernel"},
    "_config": {"api"},
    "api": {"_kernel"},
    "_generator": {"api"},
    "_certificates": {"api", "_config", "_telemetry"},
    "_api_server": {"_certificates"},
    "_collector": {"_certificates"},
    "_preprocessor": {"api", "_config", "_telemetry"},
    "_aggregator": {"api", "_config", "_telemetry"},
    "_plugins": {"api", "_config", "_telemetry"},
    "_pipeline": {"_api_server", "_collector", "_preprocessor", "_aggregator", "_plugins", "_generator"},
    "_cli": {"_pipeline"},
    "testing": {"api"},
    "__main__": {"_cli"},
    "__init__": set(),
}

IMPURE = {"trio", "pluggy", "stevedore", "logging", "structlog", "socket", "time", "random", "secrets"}
PURE_ROOMS = {"_model", "wire", "_kernel"}
STAGES = {"_certificates", "_api_server", "_collector", "_preprocessor", "_aggregator"}
SHELLS = {"process", "metrics"}

# (module, imported): an exception stands here with its reason, or it does not exist.
_A_SHELL = "a shell: one module for each transport, beside the process.py that opens them"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("_api_server.places", "trio"): "who waits for a place, beside the process.py that gives them",
    ("_certificates.authority", "time"): _A_SHELL,
    ("_certificates.authority", "trio"): _A_SHELL,
    ("_certificates.self_signed", "time"): _A_SHELL,
    ("_certificates.self_signed", "trio"): _A_SHELL,
    ("_certificates.directory", "secrets"): "names of files that are not there yet",
    ("_collector.datagrams", "socket"): _A_SHELL,
    ("_collector.handshakes", "trio"): _A_SHELL,
    ("_collector.sockets", "socket"): _A_SHELL,
    ("_collector.tcp", "socket"): _A_SHELL,
    ("_collector.tcp", "trio"): _A_SHELL,
    ("_collector.tls_stream", "trio"): _A_SHELL,
    ("_collector.udp", "socket"): _A_SHELL,
    ("_collector.udp", "trio"): _A_SHELL,
}


def reachable(room: str) -> set[str]:
    found = {room}
    waiting = list(BELOW[room])
    while waiting:
        below = waiting.pop()
        if below not in found:
            found.add(below)
            waiting.extend(BELOW[below])
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            assert node.module is not None
            yield node.module


def modules() -> list[Path]:
    return sorted(CORE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(CORE).with_suffix("").parts)


def room_of(path: Path) -> str:
    return name_of(path).split(".")[0]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_from_rooms_below_its_own(path: Path) -> None:
    allowed = reachable(room_of(path))
    for imported in imports(path):
        parts = imported.split(".")
        if parts[0] != "flowjoin" or (name_of(path), imported) in EXCEPTIONS:
            continue
        room = parts[1] if len(parts) > 1 else "__init__"
        assert room in allowed | {"__init__"}, f"{name_of(path)} imports {imported}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_pure_module_imports_nothing_that_waits_logs_or_reads_a_clock(path: Path) -> None:
    room = room_of(path)
    if room not in PURE_ROOMS and (room not in STAGES or path.stem in SHELLS):
        return
    for imported in imports(path):
        if (name_of(path), imported) in EXCEPTIONS:
            continue
        assert imported.split(".")[0] not in IMPURE, f"{name_of(path)} imports {imported}"


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "plugins").glob("*/src/**/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_plugin_imports_only_public_names_and_no_other_plugin(path: Path) -> None:
    own = path.relative_to(REPOSITORY / "plugins").parts[2]
    for imported in imports(path):
        parts = imported.split(".")
        if parts[0] == "flowjoin":
            assert len(parts) > 1
            assert parts[1] in {"api", "wire"}, f"{path} imports {imported}"
            assert not any(part.startswith("_") for part in parts), f"{path} imports {imported}"
        if parts[0].startswith("flowjoin_"):
            assert parts[0] == own, f"{path} imports {imported}"


def test_the_core_never_imports_a_plugin() -> None:
    for path in modules():
        assert not [name for name in imports(path) if name.startswith("flowjoin_")], path


def test_only_the_plugin_rooms_import_pluggy_and_stevedore() -> None:
    for path in modules():
        if room_of(path) in {"_plugins", "api"}:
            continue
        assert not {name.split(".")[0] for name in imports(path)} & {"pluggy", "stevedore"}, path


def test_only_the_http_servers_shell_imports_hypercorn() -> None:
    using = {name_of(path) for path in modules() if any(name.split(".")[0] == "hypercorn" for name in imports(path))}
    assert using == {"_api_server.process"}


def test_each_exception_is_still_needed() -> None:
    for module, imported in EXCEPTIONS:
        path = CORE.joinpath(*module.split(".")).with_suffix(".py")
        assert imported in set(imports(path)), f"{module} no longer imports {imported}"
