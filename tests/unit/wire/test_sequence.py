from __future__ import annotations

from flowjoin.wire.sequence import SequenceTracker


def losses(*messages: tuple[int, int | None]) -> list[int]:
    tracker = SequenceTracker()
    return [tracker.receive(number, count) for number, count in messages]


def test_the_first_message_tells_where_the_sequence_is() -> None:
    assert losses((900_000, 3), (900_003, 1)) == [0, 0]


def test_it_counts_data_records_not_messages() -> None:
    assert losses((0, 2), (2, 0), (2, 1), (3, 1)) == [0, 0, 0, 0]


def test_a_gap_is_that_many_records_lost() -> None:
    assert losses((0, 1), (11, 1), (12, 1)) == [0, 10, 0]


def test_it_wraps_at_32_bits() -> None:
    assert losses((2**32 - 2, 2), (0, 1), (1, 1)) == [0, 0, 0]
    assert losses((2**32 - 2, 1), (3, 1)) == [0, 4]


def test_reordering_is_not_loss() -> None:
    assert losses((0, 1), (2, 1), (1, 1), (3, 1)) == [0, 1, -1, 0]


def test_late_messages_take_back_the_middle_the_beginning_and_the_end_of_a_gap() -> None:
    assert losses((0, 1), (10, 1), (4, 2), (1, 3), (6, 4), (11, 1)) == [0, 9, -2, -3, -4, 0]


def test_reordering_across_the_wrap_is_not_loss() -> None:
    assert losses((2**32 - 3, 1), (1, 1), (2**32 - 2, 2), (0, 1), (2, 1)) == [0, 3, -2, -1, 0]


def test_a_late_message_takes_back_from_its_own_gap_only() -> None:
    assert losses((0, 1), (2, 1), (4, 1), (3, 1), (1, 1), (5, 1)) == [0, 1, 1, -1, -1, 0]


def test_a_message_that_comes_twice_changes_nothing() -> None:
    assert losses((0, 1), (5, 1), (2, 1), (2, 1), (6, 1)) == [0, 4, -1, 0, 0]


def test_a_late_message_never_takes_back_more_than_was_lost() -> None:
    assert losses((0, 1), (3, 1), (1, 60), (4, 1)) == [0, 2, -2, 0]


def test_a_restart_at_zero_is_not_four_billion_lost() -> None:
    assert losses((900_000, 1), (0, 1), (1, 1), (5, 1)) == [0, 0, 0, 3]


def test_a_restart_at_a_random_number_is_not_two_billion_lost() -> None:
    assert losses((5, 1), (2_000_000_000, 1), (2_000_000_001, 1)) == [0, 0, 0]


def test_two_messages_in_a_row_tell_that_a_young_exporter_has_restarted() -> None:
    assert losses((0, 1), (1, 20), (0, 1), (1, 1), (2, 1), (9, 1)) == [0, 0, 0, 0, 0, 6]


def test_a_lone_stray_message_is_no_restart() -> None:
    assert losses((0, 1), (1, 20), (0, 1), (21, 1), (1, 1), (22, 1)) == [0, 0, 0, 0, 0, 0]


def test_messages_without_data_records_are_no_restart_either() -> None:
    assert losses((0, 1), (1, 20), (0, 0), (0, 0), (21, 1)) == [0, 0, 0, 0, 0]


def test_after_records_that_could_not_be_counted_the_sequence_is_taken_as_it_comes() -> None:
    assert losses((0, 1), (1, None), (8, 1), (10, 1)) == [0, 0, 0, 1]


def test_a_gap_before_records_that_could_not_be_counted_is_lost() -> None:
    assert losses((0, 1), (4, None), (9, 1)) == [0, 3, 0]


def test_a_late_message_does_not_turn_an_uncounted_sequence_back() -> None:
    assert losses((0, 1), (4, None), (1, 1), (9, 1)) == [0, 3, -1, 0]


def test_the_gaps_remembered_are_bounded() -> None:
    tracker = SequenceTracker()
    lost = sum(tracker.receive(2 * number, 1) for number in range(1000))
    late = [tracker.receive(2 * number + 1, 1) for number in range(999)]
    assert lost == 999
    assert sum(late) == -64


def test_an_exporter_that_counts_the_messages_own_records_has_lost_none() -> None:
    assert losses((0, 0), (1, 1), (2, 1), (3, 1), (5, 1)) == [0, 0, 0, 0, 1]


def test_such_an_exporter_has_lost_none_after_its_restart_either() -> None:
    assert losses((900_000, 1), (0, 0), (1, 1), (2, 1)) == [0, 0, 0, 0]


def test_a_first_gap_of_another_size_is_a_loss() -> None:
    assert losses((0, 0), (3, 1)) == [0, 3]
    assert losses((0, 1), (2, 1)) == [0, 1]
