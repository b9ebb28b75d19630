"""What the tests of all conformance kits share: a configuration, ways to open, and the requirements of a kit itself."""

from __future__ import annotations

import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import pytest
import trio

from flowjoin.api import PluginContext, Secret

__all__ = [
    "Broken",
    "Config",
    "KitContract",
    "all_checks",
    "forgetting_a_socket",
    "leaving_its_socket",
    "one_at_a_time",
    "opening",
]

Check: TypeAlias = Callable[[Any], Awaitable[None]]  # of the kit's own subject
Broken: TypeAlias = tuple[Check, Any, str]  # a check, the plugin type that it catches, words of what it says
Make: TypeAlias = Callable[["Config", PluginContext], Any]
Open: TypeAlias = Callable[["Config", PluginContext], AbstractAsyncContextManager[Any]]

_SECRET = "FLOWJOIN_TEST_SECRET"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A plugin's configuration, through which a test also sees and does what it needs.

    Attributes:
        rows: what was delivered.
        kept: what the plugin keeps though it must not.
    """

    rows: list[object] = field(default_factory=list)
    is_down: list[bool] = field(default_factory=lambda: [False])
    kept: list[object] = field(default_factory=list)
    secret: Secret = field(default_factory=lambda: Secret("env", _SECRET))

    @contextmanager
    def down(self) -> Iterator[None]:
        """Inside, what the plugin needs is away."""
        self.is_down[0] = True
        try:
            yield
        finally:
            self.is_down[0] = False


def opening(make: Make) -> Open:
    """Opens as it should."""

    @asynccontextmanager
    async def opened(config: Config, context: PluginContext) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        yield make(config, context)
        await trio.lowlevel.checkpoint()

    return opened


def forgetting_a_socket(make: Make) -> Open:
    """Leaves a socket whenever it closes."""

    @asynccontextmanager
    async def opened(config: Config, context: PluginContext) -> AsyncIterator[Any]:
        config.kept.append(socket.socket())
        yield make(config, context)

    return opened


def leaving_its_socket(make: Make) -> Open:
    """Leaves a socket when it is cancelled."""

    @asynccontextmanager
    async def opened(config: Config, context: PluginContext) -> AsyncIterator[Any]:
        connection = socket.socket()
        config.kept.append(connection)
        await trio.lowlevel.checkpoint()
        yield make(config, context)
        connection.close()

    return opened


def one_at_a_time(make: Make) -> Open:
    """As long as two are open, ``config.kept`` has two items: what is made may look."""

    @asynccontextmanager
    async def opened(config: Config, context: PluginContext) -> AsyncIterator[Any]:
        config.kept.append(None)
        yield make(config, context)
        config.kept.clear()

    return opened


def all_checks(checks: ModuleType) -> list[str]:
    """The names of a kit's checks."""
    return [name for name in checks.__all__ if name.startswith("check_")]


class KitContract:
    """What every kit must be: each check catches something, accepts a sound plugin, is a test and is documented.

    Subclass it for a kit and supply the attributes and ``subject_of``.

    Attributes:
        checks: the module of the kit's checks.
        kit: the pytest class over them.
        broken: plugins broken on purpose.
        caught_elsewhere: checks that tests of the subclass's module have a broken plugin for.
        sound: a plugin that keeps the contract.
    """

    checks: ClassVar[ModuleType]
    kit: ClassVar[type]
    broken: ClassVar[Sequence[Broken]]
    caught_elsewhere: ClassVar[frozenset[str]] = frozenset()
    sound: ClassVar[Any]  # of the kit's own kind

    def subject_of(self, plugin_type: Any) -> Any:
        """The kit's subject for a type, with everything optional supplied."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "one_broken" in metafunc.fixturenames:
            names = [f"{check.__name__}-{words}" for check, _, words in self.broken]
            metafunc.parametrize("one_broken", self.broken, ids=names)
        if "name" in metafunc.fixturenames:
            # The sound one is not installed; that the check of entry points accepts one has a test of its own.
            metafunc.parametrize("name", [name for name in all_checks(self.checks) if name != "check_entry_point"])

    @pytest.fixture(autouse=True)
    def _a_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(_SECRET, "correct horse battery staple")

    async def test_a_check_catches_what_is_broken(self, one_broken: Broken, autojump_clock: object) -> None:
        check, plugin_type, words = one_broken
        subject = self.subject_of(plugin_type)
        with pytest.raises(AssertionError) as caught:
            await check(subject)
        for kept in subject.config.kept:
            if isinstance(kept, socket.socket):
                kept.close()
        assert words in str(caught.value)

    async def test_a_sound_plugin_passes_each_check(self, name: str, autojump_clock: object) -> None:
        await getattr(self.checks, name)(self.subject_of(self.sound))

    def test_each_check_has_a_plugin_that_it_catches(self) -> None:
        assert {check.__name__ for check, _, _ in self.broken} | self.caught_elsewhere == set(all_checks(self.checks))

    def test_each_check_is_a_test_of_the_class(self) -> None:
        tests = {name for name, _ in inspect.getmembers(self.kit) if name.startswith("test_")}
        assert tests == {name.replace("check_", "test_") for name in all_checks(self.checks)}

    def test_the_reference_names_every_check(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
        section = page.partition(f"## `{self.kit.__name__}`")[2].partition("\n## ")[0]
        for name in all_checks(self.checks):
            assert f"`{name}`" in section, name

    def test_a_check_is_overridden_only_with_a_strict_xfail_and_its_reason(self) -> None:
        async def test_entry_point(self: object, subject: object) -> None: ...

        with pytest.raises(TypeError, match="may be overridden only with"):
            type("Own", (self.kit,), {"test_entry_point": test_entry_point})
        marked = pytest.mark.xfail(strict=True, reason="not installed")(test_entry_point)
        type("Own", (self.kit,), {"test_entry_point": marked})
