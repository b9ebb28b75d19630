from __future__ import annotations

from flowjoin._kernel.expiry import ExpiryQueue


def drained(queue: ExpiryQueue) -> list[int]:
    order = []
    while (first := queue.first()) is not None:
        order.append(first[1])
        queue.remove(first[1])
    return order


def test_flows_leave_by_the_earlier_of_their_two_deadlines() -> None:
    queue = ExpiryQueue()
    for handle, deadlines in enumerate(((4, 6), (10, 12), (1, 3), (3, 0.5))):
        queue.push(handle, handle, min(deadlines))
    assert queue.first() == (0.5, 3)
    queue.move(3, min(2, 4))
    assert drained(queue) == [2, 3, 0, 1]


def test_of_equal_deadlines_the_first_stored_leaves_first() -> None:
    queue = ExpiryQueue()
    for handle, serial in ((5, 30), (6, 10), (7, 20)):
        queue.push(handle, serial, 1.0)
    queue.move(5, 2.0)
    queue.move(5, 1.0)
    assert drained(queue) == [6, 7, 5]
    assert queue.first() is None


def test_a_flow_may_be_taken_out_from_anywhere() -> None:
    queue = ExpiryQueue()
    for handle in range(50):
        queue.push(handle, handle, float(handle * 37 % 50))
    for handle in range(0, 50, 3):
        queue.remove(handle)
    assert drained(queue) == sorted((h for h in range(50) if h % 3), key=lambda handle: handle * 37 % 50)
    assert len(queue) == 0
