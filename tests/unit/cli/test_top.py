from __future__ import annotations

import argparse

import pytest

from flowjoin._cli.top import _seconds, _short


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (0.25, "0.25"), (7, "7"), (999, "999"), (999.4, "999"), (999.6, "1k"), (1234, "1.23k"),
        (45_678, "45.7k"), (999_999, "1M"), (12_345_678, "12.3M"), (3e15, "3000T"),
    ],
)  # fmt: skip
def test_a_figure_has_three_digits_and_a_unit(number: float, text: str) -> None:
    assert _short(number) == text


@pytest.mark.parametrize("text", ["0", "0.01", "nan", "inf", "x", "-1", "3601"])
def test_an_interval_is_a_number_of_seconds_within_reason(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"0\.1 to 3600"):
        _seconds(text)
