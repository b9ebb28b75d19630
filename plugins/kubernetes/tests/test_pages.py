"""A page read item by item is the page that ``json.loads`` reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_kubernetes._pages import Page

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


@given(
    items=st.lists(objects, max_size=5),
    beside=st.dictionaries(
        st.text(max_size=8).filter(lambda key: key not in ("items", "metadata")), values, max_size=3
    ),
    version=st.text(max_size=5),
    token=st.none() | st.text(max_size=5),
    order=st.permutations([0, 1, 2]),
    indent=st.sampled_from([None, 0, 2]),
)
def test_items_and_metadata_are_those_of_the_whole(
    items: list[Any], beside: dict[str, Any], version: str, token: str | None, order: list[int], indent: int | None
) -> None:
    metadata = {"resourceVersion": version, **({} if token is None else {"continue": token})}
    parts: list[dict[str, Any]] = [{"items": items}, {"metadata": metadata}, beside]
    whole = {key: value for at in order for key, value in parts[at].items()}
    page = Page(json.dumps(whole, indent=indent).encode())
    assert list(page) == items
    assert (page.resource_version, page.continue_token) == (version, token or "")


def test_a_list_without_items_may_say_null() -> None:
    page = Page(b'{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": null}')
    assert list(page) == []
    assert page.resource_version == "7"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"items": [', b'{"items": [{}', b'{"items": [{}, ]}', b'{"items": [1]}', b'{"items": []} x',
        b'{"items": []}', b'{"metadata": 3}', b'{"metadata": {"a": }}', b"nonsense", b'{"metadata": {}',
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        list(Page(body))


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:items metadata1', max_size=40).map(str.encode))
def test_any_octets_give_items_or_a_value_error(body: bytes) -> None:
    try:
        list(Page(body))
    except ValueError:
        return
    assert isinstance(json.loads(body), dict)
