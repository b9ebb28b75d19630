from __future__ import annotations

import pytest

from flowjoin._config.durations import format_duration, parse_duration

# the examples of Go's own documentation and tests of time.ParseDuration and Duration.String
GO_TEXTS = [
    ("0", 0.0),
    ("-0", 0.0),
    ("5s", 5.0),
    ("30s", 30.0),
    ("1478s", 1478.0),
    ("-5s", -5.0),
    ("+5s", 5.0),
    ("5.0s", 5.0),
    ("5.6s", 5.6),
    ("5.s", 5.0),
    (".5s", 0.5),
    ("1.004s", 1.004),
    ("100.00100s", 100.001),
    ("10ns", 10e-9),
    ("11us", 11e-6),
    ("12µs", 12e-6),
    ("12μs", 12e-6),
    ("13ms", 13e-3),
    ("14s", 14.0),
    ("15m", 900.0),
    ("16h", 57600.0),
    ("3h30m", 12600.0),
    ("10.5s4m", 250.5),
    ("-2m3.4s", -123.4),
    ("1h2m3s4ms5us6ns", 3723.004005006),
    ("1m30s", 90.0),
    ("250ms", 0.25),
]


@pytest.mark.parametrize(("text", "seconds"), GO_TEXTS)
def test_what_go_reads_is_read_alike(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "this is not a duration; write one such as 30s, 1m30s or 250ms"),
        ("-", "this is not a duration; write one such as 30s, 1m30s or 250ms"),
        ("9" * 200 + "s", "this is not a duration; write one such as 30s, 1m30s or 250ms"),
        ("3", '"3" has no unit; write a duration such as 30s, 1m30s or 250ms'),
        ("1m30", '"1m30" has no unit; write a duration such as 30s, 1m30s or 250ms'),
        (".s", '".s" is not a duration; write one such as 30s, 1m30s or 250ms'),
        ("+-5s", '"+-5s" is not a duration; write one such as 30s, 1m30s or 250ms'),
        ("s", '"s" is not a duration; write one such as 30s, 1m30s or 250ms'),
        ("1d", '"1d" has the unknown unit "d"; a day is 24h'),
        ("5 s", '"5 s" has the unknown unit " s"; the units are h, m, s, ms, us and ns'),
        ("3000000h", '"3000000h" is longer than 292 years'),
        ("٣s", '"٣s" is not a duration; write one such as 30s, 1m30s or 250ms'),
    ],
)
def test_what_is_no_duration_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (1e-9, "1ns"),
        (1.1e-6, "1.1µs"),
        (2.2e-3, "2.2ms"),
        (0.25, "250ms"),
        (3.3, "3.3s"),
        (245.0, "4m5s"),
        (245.001, "4m5.001s"),
        (18367.001, "5h6m7.001s"),
        (480.000000001, "8m0.000000001s"),
        (3600.0, "1h0m0s"),
        (-90.0, "-1m30s"),
        (-1e-12, "0s"),
    ],
)
def test_durations_are_printed_as_go_prints_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
