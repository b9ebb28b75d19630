from __future__ import annotations

import pytest

from flowjoin._model.nearest import nearest

KNOWN = ("maxSize", "maxAge", "path")


@pytest.mark.parametrize(("name", "meant"), [("maxSze", "maxSize"), ("MAXAGE", "maxAge"), ("pth", "path")])
def test_a_misspelt_name_is_found_whatever_its_case(name: str, meant: str) -> None:
    assert nearest(name, KNOWN) == meant


@pytest.mark.parametrize("name", ["", "frequency", "x" * 1_000_000])
def test_what_is_like_nothing_known_finds_nothing(name: str) -> None:
    assert nearest(name, KNOWN) is None


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert nearest("path", ()) is None
