from __future__ import annotations

import trio
import trio.testing

from flowjoin._pipeline.intake_gate import IntakeGate


async def test_an_open_gate_is_a_checkpoint_and_no_more() -> None:
    with trio.testing.assert_checkpoints():
        await IntakeGate().wait_open()


async def test_those_who_wait_pass_one_after_the_other_until_it_closes_again(nursery) -> None:
    gate = IntakeGate()
    gate.close()
    passed: list[int] = []

    async def want_to_pass(number: int) -> None:
        await gate.wait_open()
        passed.append(number)
        if len(passed) == 2:
            gate.close()

    for number in range(5):
        nursery.start_soon(want_to_pass, number)
    await trio.testing.wait_all_tasks_blocked()
    assert passed == []
    gate.open()
    await trio.testing.wait_all_tasks_blocked()
    assert len(passed) == 2
    gate.open()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(passed) == [0, 1, 2, 3, 4]
    assert gate.is_open


async def test_who_is_cancelled_while_waiting_holds_up_nobody() -> None:
    gate = IntakeGate()
    gate.close()
    with trio.move_on_after(0):
        await gate.wait_open()
    gate.open()
    await gate.wait_open()
