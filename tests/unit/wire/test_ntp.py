from __future__ import annotations

import pytest

from flowjoin.wire.ntp import MICROSECONDS, NANOSECONDS, from_ntp, to_ntp

UNIX_EPOCH = 2_208_988_800
NOW = 1_700_000_000


@pytest.mark.parametrize("units", [MICROSECONDS, NANOSECONDS])
@pytest.mark.parametrize("fraction", [0, 1, 2, 123_456, 499_999, 500_000, 999_999])
def test_what_is_written_is_read_back_exactly(units: int, fraction: int) -> None:
    value = NOW * units + fraction * (units // MICROSECONDS)
    assert from_ntp(to_ntp(value, units), NOW, units) == value


def test_every_nanosecond_near_a_second_survives() -> None:
    for nanosecond in (*range(50), *range(NANOSECONDS - 50, NANOSECONDS)):
        value = NOW * NANOSECONDS + nanosecond
        assert from_ntp(to_ntp(value, NANOSECONDS), NOW, NANOSECONDS) == value


def test_the_low_11_bits_say_nothing_about_microseconds() -> None:
    stamp = (NOW + UNIX_EPOCH) << 32 | 0x8000_0000
    assert (
        from_ntp(stamp | 0x7FF, NOW, MICROSECONDS) == from_ntp(stamp, NOW, MICROSECONDS) == NOW * MICROSECONDS + 500_000
    )


def test_the_low_11_bits_do_count_as_nanoseconds() -> None:
    stamp = (NOW + UNIX_EPOCH) << 32 | 0x8000_07FF
    assert from_ntp(stamp, NOW, NANOSECONDS) == NOW * NANOSECONDS + 500_000_477


def test_an_exporter_that_cuts_the_fraction_off_means_the_unit_above() -> None:
    for microsecond in range(0, MICROSECONDS, 997):
        stamp = (NOW + UNIX_EPOCH) << 32 | (microsecond << 32) // MICROSECONDS
        assert from_ntp(stamp, NOW, MICROSECONDS) == NOW * MICROSECONDS + microsecond


def test_the_era_is_the_one_nearest_to_the_export_time() -> None:
    in_2036 = 2_085_978_496  # when the 32-bit seconds begin again
    assert from_ntp(100 << 32, in_2036 + 500, MICROSECONDS) == (in_2036 + 100) * MICROSECONDS
    assert from_ntp((2**32 - 1) << 32, in_2036 + 500, MICROSECONDS) == (in_2036 - 1) * MICROSECONDS
    assert from_ntp(UNIX_EPOCH << 32, 0, MICROSECONDS) == 0
    assert from_ntp((UNIX_EPOCH - 1) << 32, 0, MICROSECONDS) == -MICROSECONDS
