"""What every kind of plugin must do, for the checks of each kind; no test framework in it."""

from __future__ import annotations

import dataclasses
import gc
import importlib.metadata
import importlib.resources
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, TypeVar

import trio

from flowjoin.api import API_VERSION, Secret
from flowjoin.testing.watching import CancelAt, Held, StepWatch

__all__ = [
    "CLOSE_SECONDS",
    "TypeT",
    "cancelled_everywhere",
    "handed_over",
    "no_long_step",
    "opened_and_closed",
    "secrets_hidden",
    "settings_of",
]

TypeT = TypeVar("TypeT")

_LONGEST_STEP_SECONDS: Final = 0.05
CLOSE_SECONDS: Final = 10.0
_MOST_CHECKPOINTS: Final = 400
_STEP_TRIES: Final = 3
_GROUP: Final = "flowjoin.plugins"
_SECRET_WORDS: Final = ("password", "passphrase", "secret", "token", "credential", "private_key", "api_key")


def handed_over(name: str, hook_name: str, kind: type[TypeT]) -> TypeT:
    """The type of that name, from installed metadata by its hook.

    Raises:
        AssertionError: the entry point, the hook, the type or the package breaks a requirement.
    """
    found = [entry for entry in importlib.metadata.entry_points(group=_GROUP) if entry.name == name]
    assert found, f"no installed distribution has the entry point {name!r} in the group {_GROUP!r}"
    assert len({(entry.value, entry.dist.name if entry.dist else "") for entry in found}) == 1, (
        f"several distributions have the entry point {name!r}"
    )
    plugin = found[0].load()
    hook = getattr(plugin, hook_name, None)
    assert hook is not None, f"{found[0].value} has no {hook_name}"
    assert getattr(hook, "flowjoin_impl", None), f"{hook_name} lacks the decorator @hookimpl"
    handed = hook()
    assert isinstance(handed, list), f"{hook_name} gives a {type(handed).__name__}, not a list"
    types: list[Any] = [each for each in handed if isinstance(each, kind) and each.name == name]  # type: ignore[attr-defined]  # every kind has a name
    assert len(types) == 1, (
        f"{hook_name} hands over {len(types)} {kind.__name__.removesuffix('Type').lower()} types named {name!r}"
    )
    plugin_type = types[0]
    assert plugin_type.api_version == API_VERSION, f"written for API {plugin_type.api_version}, not {API_VERSION}"
    config: Any = plugin_type.config
    parameters = getattr(config, "__dataclass_params__", None)
    assert parameters is not None, "its config is no dataclass"
    assert parameters.frozen, "its config is not frozen"
    package = found[0].module.partition(".")[0]
    assert importlib.resources.files(package).joinpath("py.typed").is_file(), f"{package} has no py.typed"
    return plugin_type  # type: ignore[no-any-return]  # of that kind


async def opened_and_closed(open_plugin: Callable[[], AbstractAsyncContextManager[object]]) -> None:
    """It opens and closes twice and leaves no task or socket.

    Raises:
        AssertionError: it does not.
    """
    async with open_plugin():
        pass
    held = Held.now()
    with trio.fail_after(CLOSE_SECONDS):
        async with open_plugin():
            pass
    held.check_nothing_more("after it was closed")


async def cancelled_everywhere(
    whole_life: Callable[[], Awaitable[object]],
    around: Callable[[int], AbstractAsyncContextManager[object]] = nullcontext,
) -> None:
    """Cancelled at each checkpoint in turn, it closes at once and leaves no task or socket; then it works as before.

    Args:
        around: what is looked at before and after each life that is cancelled; gets the number of the checkpoint.

    Raises:
        AssertionError: it does not.
    """
    await whole_life()  # so that what a library opens once and keeps is open already
    held = Held.now()
    for checkpoint in range(1, _MOST_CHECKPOINTS):
        async with around(checkpoint):
            with CancelAt(checkpoint) as cancellation:
                with cancellation.scope:
                    await whole_life()
                took = cancellation.seconds_since
            held.check_nothing_more(f"after it was cancelled at checkpoint {checkpoint}")
            assert took < CLOSE_SECONDS, f"cancelled at checkpoint {checkpoint}, it took {took:.0f} s to close"
        if not cancellation.was_requested:
            break
    await whole_life()


async def no_long_step(work: Callable[[], Awaitable[object]], *, remedy: str) -> None:
    """No task holds trio's thread for more than 50 ms: the best of a few tries, for machines are busy.

    Args:
        remedy: what the author of such a plugin can do.

    Raises:
        AssertionError: one does.
    """
    steps: list[float] = []
    for _ in range(_STEP_TRIES):
        watch = StepWatch()
        gc.collect()
        trio.lowlevel.add_instrument(watch)
        try:
            await work()
            await trio.lowlevel.checkpoint()  # ends the step that the work ended in
        finally:
            trio.lowlevel.remove_instrument(watch)
        steps.append(watch.longest)
        if watch.longest <= _LONGEST_STEP_SECONDS:
            return
    raise AssertionError(
        f"a task held trio's thread for {min(steps) * 1000:.0f} ms, more than {_LONGEST_STEP_SECONDS * 1000:.0f} ms: "
        f"{remedy}"
    )


def settings_of(config: object, path: str = "") -> Iterator[tuple[str, str, object]]:
    """Every setting of a configuration, however deep: its path, its name, its value."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        for each in dataclasses.fields(config):
            value = getattr(config, each.name)
            inner = f"{path}.{each.name}" if path else each.name
            yield inner, each.name, value
            yield from settings_of(value, inner)
    elif isinstance(config, list | tuple):
        for index, value in enumerate(config):
            yield from settings_of(value, f"{path}[{index}]")


def secrets_hidden(config: object, shown: Iterable[str]) -> None:
    """Secrets are ``Secret``, and their values are in none of the texts.

    Raises:
        AssertionError: one is plain text, or is shown.
    """
    for path, name, value in settings_of(config):
        assert isinstance(value, Secret) or not (
            isinstance(value, str) and any(word in name.lower() for word in _SECRET_WORDS)
        ), f"the setting {path} is plain text; make it a flowjoin.api.Secret"
    texts = list(shown)
    for _, _, value in settings_of(config):
        if isinstance(value, Secret):
            secret = value.reveal()
            assert secret, "a secret of the test's configuration is empty: nothing could be found"
            for text in texts:
                assert secret not in text, f"a secret is shown: {text.replace(secret, '<the secret>')[:200]}"
