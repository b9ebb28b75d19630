from __future__ import annotations

from flowjoin._kernel.strings import EMPTY, Strings


def test_equal_values_have_one_number_until_the_last_is_released() -> None:
    strings = Strings(100)
    first, second = strings.acquire("pod"), strings.acquire("pod")
    assert first == second != EMPTY
    assert strings[first] == "pod"
    assert (len(strings), strings.octets) == (1, 3)
    strings.release(first)
    assert strings[first] == "pod"
    strings.release(first)
    assert (len(strings), strings.octets) == (0, 0)
    assert strings.acquire("node") == first  # numbers are given again


def test_the_empty_string_costs_nothing() -> None:
    strings = Strings(0)
    assert strings.acquire("") == strings.acquire(b"") == EMPTY
    strings.release(EMPTY)
    assert strings.acquire("") == EMPTY
    assert strings.dropped == 0


def test_without_room_a_new_value_is_empty_and_counted_and_a_known_one_is_not() -> None:
    strings = Strings(5)
    number = strings.acquire("éa")  # three octets
    assert strings.acquire("abc") == EMPTY
    assert strings.dropped == 1
    assert strings.acquire("éa") == number
    assert strings.acquire("ab") != EMPTY
    assert strings.octets == 5


def test_text_and_octets_are_different_values() -> None:
    strings = Strings(100)
    text, octets = strings.acquire("a"), strings.acquire(b"a")
    assert text != octets
    assert (strings[text], strings[octets]) == ("a", b"a")
    strings.release(octets)
    assert strings[text] == "a"
    assert len(strings) == 1
