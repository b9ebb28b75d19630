"""The checks as a pytest class: subclass it, supply three fixtures, write no tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowjoin.api import ExporterType
from flowjoin.testing import checks
from flowjoin.testing.overriding import refuse_silent_overrides
from flowjoin.testing.subject import SUPPLY_DESTINATION_DOWN, CheckSkipped, Delivered, MakeDown, Subject

__all__ = ["ExporterConformance"]


class ExporterConformance:
    """Every requirement of the exporter contract, as a test.

    Fixtures to supply: ``exporter_type``, ``config`` and ``delivered``. Optional ones: ``destination_down``
    (gives a context manager inside which the destination cannot be reached), ``other_config`` with
    ``other_delivered`` (a second destination). They may be async.

    A test may be overridden only to mark it ``xfail(strict=True, reason=…)``: a requirement that is not met is
    written down, and the mark must go when it is.
    """

    pytestmark = pytest.mark.trio

    def __init_subclass__(cls, **keywords: Any) -> None:  # whatever a mixin wants
        super().__init_subclass__(**keywords)
        refuse_silent_overrides(cls, ExporterConformance)

    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        raise NotImplementedError("supply the fixture exporter_type: the ExporterType your hook hands over")

    @pytest.fixture
    def config(self) -> Any:  # the exporter's own dataclass
        raise NotImplementedError("supply the fixture config: your configuration, for a destination that works")

    @pytest.fixture
    def delivered(self) -> Delivered:
        raise NotImplementedError("supply the fixture delivered: a function that gives what the destination has")

    @pytest.fixture
    def destination_down(self) -> MakeDown | None:
        return None

    @pytest.fixture
    def other_config(self) -> Any:  # as config
        return None

    @pytest.fixture
    def other_delivered(self) -> Delivered | None:
        return None

    @pytest.fixture
    def subject(
        self,
        exporter_type: ExporterType,
        config: Any,
        delivered: Delivered,
        destination_down: MakeDown | None,
        other_config: Any,
        other_delivered: Delivered | None,
    ) -> Subject:
        """What the checks look at."""
        return Subject(
            exporter_type=exporter_type,
            config=config,
            delivered=delivered,
            destination_down=destination_down,
            other_config=other_config,
            other_delivered=other_delivered,
        )

    async def test_entry_point(self, subject: Subject) -> None:
        await _run(checks.check_entry_point, subject)

    async def test_opens_and_closes_without_a_batch(self, subject: Subject) -> None:
        await _run(checks.check_opens_and_closes_without_a_batch, subject)

    async def test_delivered_when_export_returns(self, subject: Subject) -> None:
        await _run(checks.check_delivered_when_export_returns, subject)

    async def test_an_empty_batch_delivers_nothing(self, subject: Subject) -> None:
        await _run(checks.check_an_empty_batch_delivers_nothing, subject)

    async def test_every_data_type_survives_or_is_permanent(self, subject: Subject) -> None:
        await _run(checks.check_every_data_type_survives_or_is_permanent, subject)

    async def test_bad_data_is_accepted_or_permanent(self, subject: Subject) -> None:
        await _run(checks.check_bad_data_is_accepted_or_permanent, subject)

    async def test_a_batch_is_not_changed(self, subject: Subject) -> None:
        await _run(checks.check_a_batch_is_not_changed, subject)

    async def test_a_batch_is_not_kept(self, subject: Subject) -> None:
        await _run(checks.check_a_batch_is_not_kept, subject)

    async def test_cancellation_leaves_nothing_behind(self, subject: Subject) -> None:
        await _run(checks.check_cancellation_leaves_nothing_behind, subject)

    @pytest.fixture
    def taken_down(self, destination_down: MakeDown | None) -> None:
        """Skips here rather than in the test: pytest-trio loses the reasons of tests that skip themselves."""
        if destination_down is None:
            pytest.skip(SUPPLY_DESTINATION_DOWN)

    @pytest.mark.usefixtures("taken_down")
    async def test_a_destination_that_is_down_is_retryable(self, subject: Subject) -> None:
        await _run(checks.check_a_destination_that_is_down_is_retryable, subject)

    async def test_two_instances_do_not_meet(self, subject: Subject) -> None:
        await _run(checks.check_two_instances_do_not_meet, subject)

    async def test_no_task_step_is_long(self, subject: Subject) -> None:
        await _run(checks.check_no_task_step_is_long, subject)

    async def test_secrets_are_not_shown(self, subject: Subject) -> None:
        await _run(checks.check_secrets_are_not_shown, subject)

    async def test_counters_agree_with_what_was_delivered(self, subject: Subject) -> None:
        await _run(checks.check_counters_agree_with_what_was_delivered, subject)


async def _run(check: Callable[[Subject], Awaitable[None]], subject: Subject) -> None:
    try:
        await check(subject)
    except CheckSkipped as exc:
        pytest.skip(str(exc))
