from __future__ import annotations

import pytest

from flowjoin._config.changes import compare
from flowjoin._config.load import load_config

OLD = """
collectors: [{protocol: udp}]
exporters:
  - {type: log, path: /a}
limits: {flows: 5}
log: {level: info}
apiServer: {address: "127.0.0.1:1"}
"""


@pytest.mark.parametrize(
    ("new", "live", "fixed"),
    [
        (OLD, (), ()),
        ("# comment\n\n" + OLD.replace("{type: log, path: /a}", "type: log\n    path: '/a'"), (), ()),
        (OLD.replace("/a", "/b"), ("exporters",), ()),
        (OLD.replace("info", "debug") + "shutdownGracePeriod: 1s", ("shutdownGracePeriod", "log.level"), ()),
        (
            OLD + "recordContents: {podLabels: true, elements: [x]}",
            ("recordContents.podLabels",),
            ("recordContents.elements",),
        ),
        (OLD + "flowLogger: {enable: true}", ("exporters",), ()),
        (
            OLD.replace("udp", "tcp").replace("flows: 5", "flows: 6").replace(":1", ":2") + "mode: Proxy",
            (),
            ("mode", "collectors", "limits.flows", "apiServer.address"),
        ),
    ],
)
def test_changed_keys_are_named_and_told_apart(new: str, live: tuple[str, ...], fixed: tuple[str, ...]) -> None:
    changes = compare(load_config(OLD, "f").config, load_config(new, "f").config)
    assert (changes.live, changes.fixed) == (live, fixed)
