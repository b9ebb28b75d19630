"""The checks of enrichers as a pytest class: subclass it, supply three fixtures, write no tests."""

from __future__ import annotations

from typing import Any

import pytest

from flowjoin.api import EnricherType
from flowjoin.testing import enricher_checks as checks
from flowjoin.testing.enricher_checks import SUPPLY_SOURCE_DOWN, EnricherExample, EnricherSubject
from flowjoin.testing.overriding import refuse_silent_overrides
from flowjoin.testing.subject import MakeDown

__all__ = ["EnricherConformance"]


class EnricherConformance:
    """Every requirement of the enricher contract, as a test.

    Fixtures to supply: ``enricher_type``, ``config`` and ``example``. Optional: ``source_down`` (gives a context
    manager inside which what its tables come from is away). They may be async.

    A test may be overridden only to mark it ``xfail(strict=True, reason=…)``.
    """

    pytestmark = pytest.mark.trio

    def __init_subclass__(cls, **keywords: Any) -> None:  # whatever a mixin wants
        super().__init_subclass__(**keywords)
        refuse_silent_overrides(cls, EnricherConformance)

    @pytest.fixture
    def enricher_type(self) -> EnricherType:
        raise NotImplementedError("supply the fixture enricher_type: the EnricherType your hook hands over")

    @pytest.fixture
    def config(self) -> Any:  # the enricher's own dataclass
        raise NotImplementedError("supply the fixture config: your configuration, with which it has its tables")

    @pytest.fixture
    def example(self) -> EnricherExample:
        raise NotImplementedError("supply the fixture example: a batch, and the columns that it must get")

    @pytest.fixture
    def source_down(self) -> MakeDown | None:
        return None

    @pytest.fixture
    def subject(
        self, enricher_type: EnricherType, config: Any, example: EnricherExample, source_down: MakeDown | None
    ) -> EnricherSubject:
        """What the checks look at."""
        return EnricherSubject(enricher_type=enricher_type, config=config, example=example, source_down=source_down)

    async def test_entry_point(self, subject: EnricherSubject) -> None:
        await checks.check_entry_point(subject)

    async def test_declared_elements_are_known(self, subject: EnricherSubject) -> None:
        await checks.check_declared_elements_are_known(subject)

    async def test_opens_and_closes(self, subject: EnricherSubject) -> None:
        await checks.check_opens_and_closes(subject)

    async def test_the_example_is_enriched(self, subject: EnricherSubject) -> None:
        await checks.check_the_example_is_enriched(subject)

    async def test_any_batch_gets_columns_that_fit(self, subject: EnricherSubject) -> None:
        await checks.check_any_batch_gets_columns_that_fit(subject)

    async def test_a_batch_is_neither_changed_nor_kept(self, subject: EnricherSubject) -> None:
        await checks.check_a_batch_is_neither_changed_nor_kept(subject)

    async def test_cancellation_leaves_nothing_behind(self, subject: EnricherSubject) -> None:
        await checks.check_cancellation_leaves_nothing_behind(subject)

    async def test_two_instances_do_not_meet(self, subject: EnricherSubject) -> None:
        await checks.check_two_instances_do_not_meet(subject)

    @pytest.fixture
    def taken_away(self, source_down: MakeDown | None) -> None:
        """Skips here rather than in the test: pytest-trio loses the reasons of tests that skip themselves."""
        if source_down is None:
            pytest.skip(SUPPLY_SOURCE_DOWN)

    @pytest.mark.usefixtures("taken_away")
    async def test_without_its_source_it_goes_on(self, subject: EnricherSubject) -> None:
        await checks.check_without_its_source_it_goes_on(subject)

    async def test_no_task_step_is_long(self, subject: EnricherSubject) -> None:
        await checks.check_no_task_step_is_long(subject)

    async def test_secrets_are_not_shown(self, subject: EnricherSubject) -> None:
        await checks.check_secrets_are_not_shown(subject)
