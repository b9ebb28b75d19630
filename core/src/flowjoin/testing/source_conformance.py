"""The checks of sources as a pytest class: subclass it, supply three fixtures, write no tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trio.abc import Clock

from flowjoin.api import SourceType
from flowjoin.testing import source_checks as checks
from flowjoin.testing.overriding import refuse_silent_overrides
from flowjoin.testing.source_checks import SUPPLY_READ_DOWN, SUPPLY_UNUSABLE_CONFIG, SourceExample, SourceSubject
from flowjoin.testing.subject import MakeDown

__all__ = ["SourceConformance"]


class SourceConformance:
    """Every requirement of the source contract, as a test.

    Fixtures to supply: ``source_type``, ``config`` and ``example``. Optional: ``lookups`` (what ``context.lookup``
    gives), ``source_down`` (gives a context manager inside which what it reads is away), ``unusable_config`` (with
    which it cannot work here), ``clock`` (return pytest-trio's ``autojump_clock`` where the source waits and reads
    nothing real: then nobody else waits). They may be async.

    A test may be overridden only to mark it ``xfail(strict=True, reason=…)``.
    """

    pytestmark = pytest.mark.trio

    def __init_subclass__(cls, **keywords: Any) -> None:  # whatever a mixin wants
        super().__init_subclass__(**keywords)
        refuse_silent_overrides(cls, SourceConformance)

    @pytest.fixture
    def source_type(self) -> SourceType:
        raise NotImplementedError("supply the fixture source_type: the SourceType your hook hands over")

    @pytest.fixture
    def config(self) -> Any:  # the source's own dataclass
        raise NotImplementedError("supply the fixture config: your configuration, with which it gives the example")

    @pytest.fixture
    def example(self) -> SourceExample:
        raise NotImplementedError("supply the fixture example: rows that must come, and what makes them come")

    @pytest.fixture
    def lookups(self) -> Mapping[type[object], object]:
        return {}

    @pytest.fixture
    def source_down(self) -> MakeDown | None:
        return None

    @pytest.fixture
    def unusable_config(self) -> Any:  # as config
        return None

    @pytest.fixture
    def clock(self) -> Clock | None:
        """Every test asks for it itself, for pytest-trio looks for clocks there alone."""
        return None

    @pytest.fixture
    def subject(
        self,
        source_type: SourceType,
        config: Any,
        example: SourceExample,
        lookups: Mapping[type[object], object],
        source_down: MakeDown | None,
        unusable_config: Any,
    ) -> SourceSubject:
        """What the checks look at."""
        return SourceSubject(
            source_type=source_type,
            config=config,
            example=example,
            lookups=lookups,
            source_down=source_down,
            unusable_config=unusable_config,
        )

    async def test_entry_point(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_entry_point(subject)

    async def test_opens_and_closes(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_opens_and_closes(subject)

    async def test_the_example_is_given(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_the_example_is_given(subject)

    async def test_every_batch_keeps_the_laws(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_every_batch_keeps_the_laws(subject)

    async def test_cancellation_leaves_nothing_behind(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_cancellation_leaves_nothing_behind(subject)

    async def test_two_instances_do_not_meet(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_two_instances_do_not_meet(subject)

    @pytest.fixture
    def taken_away(self, source_down: MakeDown | None) -> None:
        """Skips here rather than in the test: pytest-trio loses the reasons of tests that skip themselves."""
        if source_down is None:
            pytest.skip(SUPPLY_READ_DOWN)

    @pytest.mark.usefixtures("taken_away")
    async def test_after_a_failure_it_works_again(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_after_a_failure_it_works_again(subject)

    @pytest.fixture
    def refused(self, unusable_config: Any) -> None:
        """As ``taken_away``."""
        if unusable_config is None:
            pytest.skip(SUPPLY_UNUSABLE_CONFIG)

    @pytest.mark.usefixtures("refused")
    async def test_what_cannot_work_is_refused(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_what_cannot_work_is_refused(subject)

    async def test_no_task_step_is_long(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_no_task_step_is_long(subject)

    async def test_secrets_are_not_shown(self, subject: SourceSubject, clock: Clock | None) -> None:
        await checks.check_secrets_are_not_shown(subject)
