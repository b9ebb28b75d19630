"""The checks of look-ups as a pytest class: subclass it, supply three fixtures, write no tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flowjoin.api import LookupType
from flowjoin.testing import lookup_checks as checks
from flowjoin.testing.lookup_checks import SUPPLY_LOOKUP_SOURCE_DOWN, LookupExample, LookupSubject
from flowjoin.testing.overriding import refuse_silent_overrides
from flowjoin.testing.subject import MakeDown

__all__ = ["LookupConformance"]


class LookupConformance:
    """Every requirement of the look-up contract, as a test.

    Fixtures to supply: ``lookup_type``, ``config`` and ``examples``. Optional: ``source_down`` (gives a context manager
    inside which what it answers from is away). They may be async.

    A test may be overridden only to mark it ``xfail(strict=True, reason=…)``.
    """

    pytestmark = pytest.mark.trio

    def __init_subclass__(cls, **keywords: Any) -> None:  # whatever a mixin wants
        super().__init_subclass__(**keywords)
        refuse_silent_overrides(cls, LookupConformance)

    @pytest.fixture
    def lookup_type(self) -> LookupType:
        raise NotImplementedError("supply the fixture lookup_type: the LookupType your hook hands over")

    @pytest.fixture
    def config(self) -> Any:  # the provider's own dataclass
        raise NotImplementedError("supply the fixture config: your configuration, with which it can answer")

    @pytest.fixture
    def examples(self) -> Sequence[LookupExample]:
        raise NotImplementedError("supply the fixture examples: questions and their answers")

    @pytest.fixture
    def source_down(self) -> MakeDown | None:
        return None

    @pytest.fixture
    def subject(
        self, lookup_type: LookupType, config: Any, examples: Sequence[LookupExample], source_down: MakeDown | None
    ) -> LookupSubject:
        """What the checks look at."""
        return LookupSubject(lookup_type=lookup_type, config=config, examples=examples, source_down=source_down)

    async def test_entry_point(self, subject: LookupSubject) -> None:
        await checks.check_entry_point(subject)

    async def test_opens_and_closes(self, subject: LookupSubject) -> None:
        await checks.check_opens_and_closes(subject)

    async def test_each_protocol_is_provided(self, subject: LookupSubject) -> None:
        await checks.check_each_protocol_is_provided(subject)

    async def test_the_examples_are_answered(self, subject: LookupSubject) -> None:
        await checks.check_the_examples_are_answered(subject)

    async def test_what_nobody_has_is_none(self, subject: LookupSubject) -> None:
        await checks.check_what_nobody_has_is_none(subject)

    async def test_cancellation_leaves_nothing_behind(self, subject: LookupSubject) -> None:
        await checks.check_cancellation_leaves_nothing_behind(subject)

    async def test_two_instances_do_not_meet(self, subject: LookupSubject) -> None:
        await checks.check_two_instances_do_not_meet(subject)

    @pytest.fixture
    def taken_away(self, source_down: MakeDown | None) -> None:
        """Skips here rather than in the test: pytest-trio loses the reasons of tests that skip themselves."""
        if source_down is None:
            pytest.skip(SUPPLY_LOOKUP_SOURCE_DOWN)

    @pytest.mark.usefixtures("taken_away")
    async def test_without_its_source_it_goes_on(self, subject: LookupSubject) -> None:
        await checks.check_without_its_source_it_goes_on(subject)

    async def test_no_task_step_is_long(self, subject: LookupSubject) -> None:
        await checks.check_no_task_step_is_long(subject)

    async def test_secrets_are_not_shown(self, subject: LookupSubject) -> None:
        await checks.check_secrets_are_not_shown(subject)
