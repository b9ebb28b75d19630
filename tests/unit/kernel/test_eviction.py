from __future__ import annotations

from flowjoin._kernel.eviction import EvictionOrder


def test_the_ready_flow_longest_without_a_record_is_first_then_the_oldest_half() -> None:
    order = EvictionOrder()
    assert order.first() is None
    order.add_waiting(0)
    order.add_waiting(1)
    order.add_ready(2, 2, 5.0)
    order.add_ready(3, 3, 4.0 + 1.0)
    assert order.first() == 2
    order.remove_ready(2)
    order.add_ready(2, 2, 6.0)  # a record came
    assert order.first() == 3
    order.remove_ready(3)
    order.remove_ready(2)
    assert order.first() == 0
    order.remove_waiting(0)
    assert order.first() == 1
    assert order.waiting == 1


def test_of_equal_times_the_first_stored_is_first_however_the_records_came() -> None:
    order = EvictionOrder()
    for handle, serial in ((9, 3), (8, 1), (7, 2)):
        order.add_ready(handle, serial, 1.0)
    assert order.first() == 8
    order.add_ready(6, 0, 1.0)  # joined at the same time, but stored before
    assert order.first() == 6
    order.remove_ready(6)
    order.remove_ready(8)
    order.add_ready(8, 9, 1.0)  # the handle is another flow's now
    assert [order.first()] == [7]
    order.remove_ready(7)
    assert order.first() == 9
    order.remove_ready(9)
    assert order.first() == 8


def test_many_flows_leave_one_by_one_in_the_order_of_records_then_of_storing() -> None:
    order = EvictionOrder()
    seen = {}
    for serial in range(60):
        handle = 59 - serial
        time = float(serial // 7)
        order.add_ready(handle, serial, time)
        seen[handle] = (time, serial)
    for handle in (59, 40, 3):  # records came for these
        order.remove_ready(handle)
        order.add_ready(handle, seen[handle][1], 8.0)
        seen[handle] = (8.0, seen[handle][1])
    left = []
    while (handle_or_none := order.first()) is not None:
        left.append(handle_or_none)
        order.remove_ready(handle_or_none)
    assert left == sorted(seen, key=lambda handle: seen[handle])
