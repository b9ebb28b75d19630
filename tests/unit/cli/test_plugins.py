from __future__ import annotations

import json

import pytest

from flowjoin.__main__ import main
from flowjoin._cli import plugins
from flowjoin._plugins.listing import PluginListing


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_plugins(*, load: bool) -> tuple[PluginListing, ...]:
        assert load
        return (
            PluginListing(name="log", distribution="flowjoin-log", version="0.1.0", target="m", kinds=("exporter",)),
            PluginListing(
                name="sad", distribution="sad", version="2", target="n", kinds=None, problem="cannot be imported: X"
            ),
        )

    monkeypatch.setattr(plugins, "list_plugins", list_plugins)


@pytest.mark.usefixtures("listed")
def test_each_plugin_is_a_row_with_what_it_brings_or_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    assert capsys.readouterr().out == (
        "name  distribution  version  kinds     state\n"
        "log   flowjoin-log  0.1.0    exporter  ok\n"
        "sad   sad           2                  cannot be imported: X\n"
    )


@pytest.mark.usefixtures("listed")
def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "name": "log",
        "distribution": "flowjoin-log",
        "version": "0.1.0",
        "kinds": ["exporter"],
        "state": "ok",
    }
