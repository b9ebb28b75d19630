from __future__ import annotations

import pytest

from flowjoin._config.sizes import format_octets, parse_octets


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("0", 0),
        ("4096", 4096),
        ("256MiB", 256 * 2**20),
        ("1GiB", 2**30),
        ("1.5KiB", 1536),
        ("10MB", 10_000_000),
        ("1 TiB", 2**40),
        ("7B", 7),
        ("2kB", 2000),
    ],
)
def test_a_size_is_read_in_octets(text: str, octets: int) -> None:
    assert parse_octets(text) == octets


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", '"" is not a size; write one such as 256MiB, 1GiB or 4096'),
        ("-1", '"-1" is not a size; write one such as 256MiB, 1GiB or 4096'),
        ("1e6", '"1e6" is not a size; write one such as 256MiB, 1GiB or 4096'),
        ("1Mib", '"1Mib" has the unknown unit "Mib"; did you mean MiB?'),
        ("0.3B", '"0.3B" is not a whole number of octets below 8 EiB'),
        ("9999999TiB", '"9999999TiB" is not a whole number of octets below 8 EiB'),
        ("٣MiB", '"٣MiB" is not a size; write one such as 256MiB, 1GiB or 4096'),
    ],
)
def test_what_is_no_size_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_octets(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("octets", "text"), [(0, "0"), (1000, "1000"), (1024, "1KiB"), (256 * 2**20, "256MiB"), (2**30, "1GiB")]
)
def test_a_size_is_printed_in_the_largest_unit_that_loses_nothing(octets: int, text: str) -> None:
    assert format_octets(octets) == text
