"""One form of CSV for every exporter."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from flowjoin._kernel import row_writing
from flowjoin.api import AddressFamily, ConfigError, FlowBatch
from flowjoin.api.lines import ADDRESS_COLUMNS, CsvLines, refuse_unknown_elements
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.batches import HOSTILE_TEXTS
from flowjoin.wire import default_registry


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def _each_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(row_writing, "_compiled", lambda: None)
    elif row_writing._compiled() is None:
        pytest.skip("the compiled writers were not built")


def lines_of(batch: FlowBatch, *columns: str, is_quoted: bool = True, **keys: Any) -> str:
    return b"".join(CsvLines(columns, is_quoted=is_quoted, **keys).render(batch)).decode()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("plain", "plain"),
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("two\nlines", '"two\nlines"'),
        ("carriage\rreturn", '"carriage\rreturn"'),
        ("", ""),
        (" blanks ", " blanks "),
    ],
)
def test_rfc_4180_quotes_what_holds_a_comma_a_quote_or_a_line_break(text: str, field: str) -> None:
    assert lines_of(standard_flow(sourcePodName=text), "sourcePodName", "flowEndReason") == f"{field},3\n"


def test_without_quotes_only_line_breaks_become_spaces() -> None:
    for text, field in (('a,b "c" \t\x1b', 'a,b "c" \t\x1b'), ("two\r\nlines", "two  lines")):
        assert lines_of(standard_flow(sourcePodName=text), "sourcePodName", is_quoted=False) == f"{field}\n"


def test_chosen_columns_stand_between_single_quotes_where_nothing_else_is_quoted() -> None:
    batch = standard_flow(sourcePodLabels="", destinationPodLabels="a\nb")
    columns = ("sourcePodLabels", "destinationPodLabels", "sourcePodName")
    labels = frozenset({"sourcePodLabels", "destinationPodLabels"})
    assert lines_of(batch, *columns, is_quoted=False, single_quoted=labels) == "'','a b',perftest-a\n"
    assert lines_of(batch, *columns, single_quoted=labels) == ',"a\nb",perftest-a\n'


def test_constants_are_fields_like_others_and_words_stand_for_values() -> None:
    columns = ("cluster", "protocolIdentifier", "flowEndReason")
    keys: dict[str, Any] = {"constants": {"cluster": 'a,"b"'}, "words": {"protocolIdentifier": lambda _: "TCP"}}
    assert lines_of(numbered_flows(2), *columns, **keys) == '"a,""b""",TCP,3\n' * 2
    assert lines_of(numbered_flows(1), *columns, is_quoted=False, **keys) == 'a,"b",TCP,3\n'


@pytest.mark.parametrize("family", AddressFamily)
def test_addresses_have_one_column_for_both_families(family: AddressFamily) -> None:
    unset = "0.0.0.0" if family is AddressFamily.IPV4 else "::"
    batch = standard_flow(
        family, **{f"destinationServiceIPv{family.value}": unset, f"sourceIPv{family.value}Address": unset}
    )
    source, destination, cluster, service = lines_of(batch, *ADDRESS_COLUMNS).rstrip("\n").split(",")
    assert (source, service) == (unset, "")
    assert (destination, cluster) == (batch.address_text("destination")[0], batch.address_text("destinationCluster")[0])
    assert lines_of(batch, "destinationServiceIP", unset_addresses_empty=False) == f"{unset}\n"


def test_every_data_type_has_a_field() -> None:
    batch = every_data_type()
    names = [name for name in batch.schema.names if name.startswith("example")]
    rows = list(csv.DictReader(io.StringIO(",".join(names) + "\n" + lines_of(batch, *names), newline="")))
    assert len(rows) == 3
    assert rows[1]["exampleOctetArray"] == "00"
    assert rows[1]["exampleBoolean"] == "true"
    assert rows[1]["exampleFloat32"] == "NaN"
    assert rows[2]["exampleUnsigned64"] == str(2**64 - 1)
    assert rows[2]["exampleMacAddress"] == "ff:ff:ff:ff:ff:ff"
    iso = lines_of(batch, "exampleDateTimeMilliseconds", iso_times=True).splitlines()
    assert iso == ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", "+584556019-04-03T14:25:51.615Z"]


def test_any_text_is_read_back_by_a_reader_of_rfc_4180() -> None:
    text = lines_of(hostile_flows(), "sourcePodName", "octetDeltaCount")
    csv.field_size_limit(1 << 20)
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == list(HOSTILE_TEXTS)


def test_slices_are_whole_lines_in_order() -> None:
    batch = numbered_flows(10_000)
    chunks = list(CsvLines(["octetTotalCount"], is_quoted=True, most_lines=64).render(batch))
    assert all(chunk.endswith(b"\n") and chunk.count(b"\n") <= 64 for chunk in chunks)
    assert b"".join(chunks).split() == [b"%d" % (number * 1000) for number in range(10_000)]


def test_an_element_outside_the_schema_has_its_default_and_one_outside_the_registry_is_no_element() -> None:
    assert lines_of(plain_flows(1), "sourcePodName", "flowEndReason") == ",1\n"
    with pytest.raises(KeyError):
        lines_of(plain_flows(1), "noSuchElement")


def test_names_that_are_no_elements_are_refused_with_their_place() -> None:
    registry = default_registry()
    refuse_unknown_elements(["octetDeltaCount"], registry)
    with pytest.raises(ConfigError, match=r"^columns\[1\]: there is no Information Element 'no'") as refused:
        refuse_unknown_elements(["octetDeltaCount", "no"], registry, path="columns")
    assert refused.value.path == "columns[1]"
