"""What every provider of look-ups must do: one async function per requirement, with no test framework in it.

Each check takes a ``LookupSubject`` and raises AssertionError with the requirement that is broken.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import trio

from flowjoin.api import (
    EgressLookup,
    LookupType,
    NodeLookup,
    Pod,
    PodLookup,
    PodNetworkLookup,
    PolicyLookup,
    ServiceLookup,
)
from flowjoin.testing.context import RecordingContext
from flowjoin.testing.requirements import (
    cancelled_everywhere,
    handed_over,
    no_long_step,
    opened_and_closed,
    secrets_hidden,
)
from flowjoin.testing.subject import CheckSkipped, MakeDown, entered

__all__ = [
    "SUPPLY_LOOKUP_SOURCE_DOWN",
    "LookupExample",
    "LookupSubject",
    "check_cancellation_leaves_nothing_behind",
    "check_each_protocol_is_provided",
    "check_entry_point",
    "check_no_task_step_is_long",
    "check_opens_and_closes",
    "check_secrets_are_not_shown",
    "check_the_examples_are_answered",
    "check_two_instances_do_not_meet",
    "check_what_nobody_has_is_none",
    "check_without_its_source_it_goes_on",
]

SUPPLY_LOOKUP_SOURCE_DOWN: Final = "supply source_down: a context manager inside which what it answers from is away"
_HOOK: Final = "flowjoin_lookup_types"
_CALLS: Final = 1000

# Of documentation's address blocks (RFC 5737, RFC 3849), with and without a time.
_QUESTIONS: Final[dict[type[Any], tuple[tuple[str, tuple[Any, ...]], ...]]] = {
    PodLookup: (("pod", ("203.0.113.254",)), ("pod", ("2001:db8:ffff::fffe", 5.0))),
    PodNetworkLookup: (("pod_network", ("203.0.113.254",)), ("pod_network", ("2001:db8:ffff::fffe", 5.0))),
    NodeLookup: (
        ("node_by_address", ("203.0.113.254",)),
        ("node_by_address", ("2001:db8:ffff::fffe", 5.0)),
        ("node_by_name", ("no-such-node",)),
        ("node_by_name", ("", 5.0)),
    ),
    ServiceLookup: (
        ("service_by_address", ("203.0.113.254", 80, 6)),
        ("service_by_address", ("2001:db8:ffff::fffe", 80, 6, 5.0)),
        ("service_by_name", ("no-such-namespace", "no-such-service")),
        ("service_by_name", ("", "", 5.0)),
    ),
    EgressLookup: (("egress", (Pod(namespace="no-such", name="no-such"),)),),
    PolicyLookup: (("rule", (4294967295,)), ("rule", (4294967295, 7)), ("rule", (4294967295, 0, 5.0))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupExample:
    """A question of which the author knows the answer.

    Attributes:
        method: of one of the protocols; where it is async, it is awaited.
        arguments: in order.
    """

    method: str
    arguments: tuple[Any, ...]
    answer: object


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSubject:
    """The provider under test.

    Attributes:
        config: with which it opens and can answer.
        examples: at least one for each protocol that it provides.
        source_down: gives a context manager inside which what it answers from is away; None if there is no such
            thing, or it cannot be arranged.
    """

    lookup_type: LookupType
    config: Any  # the provider's own dataclass
    examples: Sequence[LookupExample]
    source_down: MakeDown | None = None

    def open(self, context: RecordingContext | None = None) -> AbstractAsyncContextManager[object]:
        """The provider's own context manager."""
        return self.lookup_type.open(self.config, self.context() if context is None else context)

    def context(self) -> RecordingContext:
        """A fresh context, named as the provider is."""
        return RecordingContext(name=self.lookup_type.name)


async def check_entry_point(subject: LookupSubject) -> None:
    """Installed metadata names a module that hands over this type, and the module is typed."""
    await trio.lowlevel.checkpoint()
    handed_over(subject.lookup_type.name, _HOOK, LookupType)


async def check_opens_and_closes(subject: LookupSubject) -> None:
    """Opened and closed twice it leaves no task or socket."""
    await opened_and_closed(subject.open)


async def check_each_protocol_is_provided(subject: LookupSubject) -> None:
    """It provides at least one protocol, and has every method of each, async exactly where the protocol's is."""
    assert subject.lookup_type.provides, "it provides no protocol"
    async with subject.open() as provider:
        for protocol in subject.lookup_type.provides:
            for name in _methods(protocol):
                method = getattr(provider, name, None)
                assert callable(method), f"it lacks {protocol.__name__}.{name}"
                is_async = inspect.iscoroutinefunction(getattr(protocol, name))
                assert inspect.iscoroutinefunction(method) == is_async, (
                    f"{protocol.__name__}.{name} must {'' if is_async else 'not '}be async"
                )


async def check_the_examples_are_answered(subject: LookupSubject) -> None:
    """Every example gets its answer, and there is one for each of the API's protocols."""
    for protocol in subject.lookup_type.provides:
        methods = set(_methods(protocol))
        if protocol in _QUESTIONS:
            assert methods & {example.method for example in subject.examples}, f"no example asks {protocol.__name__}"
    async with subject.open() as provider:
        await _check_examples(subject, provider)


async def check_what_nobody_has_is_none(subject: LookupSubject) -> None:
    """An address, name or number of nothing is answered with None, with a time and without."""
    async with subject.open() as provider:
        for protocol in subject.lookup_type.provides:
            for method, arguments in _QUESTIONS.get(protocol, ()):
                answer = getattr(provider, method)(*arguments)
                assert answer is None, f"{method}{arguments} is {answer!r}, not None"


async def check_without_its_source_it_goes_on(subject: LookupSubject) -> None:
    """While what it answers from is away, sync questions are answered as before."""
    if subject.source_down is None:
        raise CheckSkipped(SUPPLY_LOOKUP_SOURCE_DOWN)
    async with subject.open() as provider:
        await _check_examples(subject, provider)
        async with entered(subject.source_down()):
            await _check_examples(subject, provider, only_sync=True)


async def check_cancellation_leaves_nothing_behind(subject: LookupSubject) -> None:
    """Cancelled at any checkpoint of open, an async question or close, it closes at once and leaves nothing."""

    async def whole_life() -> None:
        async with subject.open() as provider:
            await _check_examples(subject, provider)
            await trio.lowlevel.checkpoint()

    await cancelled_everywhere(whole_life)


async def check_two_instances_do_not_meet(subject: LookupSubject) -> None:
    """Two instances answer beside each other, and one goes on when the other has closed."""
    async with subject.open() as first:
        async with subject.open() as second:
            await _check_examples(subject, first)
            await _check_examples(subject, second)
        await _check_examples(subject, first)


async def check_no_task_step_is_long(subject: LookupSubject) -> None:
    """No task holds trio's thread for more than 50 ms while it asks each sync example a thousand times."""

    async def whole_life() -> None:
        async with subject.open() as provider:
            for example in subject.examples:
                method = getattr(provider, example.method)
                if inspect.iscoroutinefunction(method):
                    continue
                await trio.lowlevel.checkpoint()
                for _ in range(_CALLS):
                    method(*example.arguments)
            await trio.lowlevel.checkpoint()

    await no_long_step(whole_life, remedy="answer from tables in memory, and refresh them in slices")


async def check_secrets_are_not_shown(subject: LookupSubject) -> None:
    """Secrets are ``Secret``, and their values are in no repr or log line."""
    context = subject.context()
    shown = [repr(subject.config), str(subject.config)]
    async with subject.open(context) as provider:
        shown += [repr(provider), str(provider)]
        await _check_examples(subject, provider)
    shown += [repr(line) for line in context.log.lines] + context.impairments
    secrets_hidden(subject.config, shown)


async def _check_examples(subject: LookupSubject, provider: object, *, only_sync: bool = False) -> None:
    await trio.lowlevel.checkpoint()
    for example in subject.examples:
        method = getattr(provider, example.method)
        is_async = inspect.iscoroutinefunction(method)
        if is_async and only_sync:
            continue
        answer = method(*example.arguments)
        answer = await answer if is_async else answer
        assert answer == example.answer, f"{example.method}{example.arguments} is {answer!r}, not {example.answer!r}"


def _methods(protocol: type[Any]) -> list[str]:
    return [name for name, member in vars(protocol).items() if callable(member) and not name.startswith("_")]
