"""The plugin's reference page has every key, counter and event, with the default that the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from clickhouse_lane import context, deliver
from clickhouse_process import ClickHouseProcess

from flowjoin._config.fields import fields_of
from flowjoin._config.plain import to_plain
from flowjoin.api import Secret
from flowjoin.testing.batches import numbered_flows
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig, TlsConfig
from flowjoin_clickhouse._exporter import open_clickhouse

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "reference" / "exporters" / "clickhouse.md").read_text(encoding="utf-8")
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(__file__).parents[1] / "src" / "flowjoin_clickhouse").glob("*.py")
)


def written(default: object, hint: object) -> str:
    if dataclasses.is_dataclass(default) or default in (None, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "`[]`" if default == () else f"`{to_plain(default, hint)}`"


@pytest.mark.parametrize("cls", [ClickHouseConfig, SchemaConfig, TlsConfig])
def test_each_key_is_there_with_its_default(cls: type[object]) -> None:
    for spec in fields_of(cls):
        row = re.search(rf"^\| `{spec.key}` \|[^|]*\| (\S+) \|", PAGE, re.MULTILINE)
        assert row is not None, f"the page lacks {spec.key}"
        assert row[1] == ("required" if spec.required else written(spec.default, spec.hint)), spec.key
        assert spec.documentation


def test_each_counter_and_event_is_there() -> None:
    counters = re.findall(r'\.counter\(\s*"(\w+)"', SOURCES)
    events = set(re.findall(r'\blog\.\w+\(\s*"(\w+)"', SOURCES)) | set(re.findall(r'_log\.\w+\(\s*"(\w+)"', SOURCES))
    assert len(counters) == 8
    assert len(events) == 10
    for name in [*(f"flowjoin_clickhouse_{counter}_total" for counter in counters), *events]:
        assert f"| `{name}` |" in PAGE, name


def replicated_statements(database: str) -> list[str]:
    """The page's, for one node."""
    section = PAGE[PAGE.index("### Replicated tables") :].partition("\n### ")[0]
    blocks = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    text = "".join(blocks).replace(" ON CLUSTER '{cluster}'", "").replace("flows_db", database)
    text = re.sub(r"Replicated(\w*MergeTree)\([^)]*\)", r"\1", text)
    text = re.sub("replicated_deduplication_window = 10000, .*;", "non_replicated_deduplication_window = 10000;", text)
    return [each for each in text.split(";\n") if each.strip()]


async def test_the_form_for_replicated_tables_gets_its_columns_and_its_view(
    server: ClickHouseProcess, database: str, password: str
) -> None:
    assert password
    table, target, view = replicated_statements(database)
    server.command(f"CREATE DATABASE {database}")
    server.command(table)
    config = ClickHouseConfig(
        database_url=server.url,
        database=database,
        password=Secret("env", "CH_PASSWORD"),
        create_schema=True,
        schema=SchemaConfig(views=False),
    )
    ctx = context()
    async with open_clickhouse(config, ctx) as exporter:
        server.command(target)
        server.command(view)
        server.arm(match="INSERT INTO", drop="after")
        await deliver(exporter, numbered_flows(50).with_id("a"))
    assert server.query(f"SELECT sum(flows) FROM {database}.flows_by_minute") == [[50]]
    assert server.query(f"SELECT count() FROM {database}.flows") == [[50]]
    assert "columns_added" in [line.event for line in ctx.log.lines]
