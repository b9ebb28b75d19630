"""What the page on trust says: what listens, that verification is on, who may read what lies on the disk."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from running_flowjoin import Run, send

from flowjoin._config.fields import fields_of
from flowjoin._config.load import load_config
from flowjoin._generator.config import TrafficConfig

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
PLUGINS = ("clickhouse", "ipfix", "s3")
LISTENING, UDP_OPEN = "0A", "07"  # states in /proc/net, of Linux's include/net/tcp_states.h


def ports_of(process: int) -> Iterator[tuple[str, int]]:
    """What a process listens on, as Linux has it: (protocol, port)."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            sockets |= set(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    for protocol, state in (("tcp", LISTENING), ("tcp6", LISTENING), ("udp", UDP_OPEN), ("udp6", UDP_OPEN)):
        for line in Path(f"/proc/{process}/net/{protocol}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[9] in sockets and fields[3] == state:
                yield protocol[:3], int(fields[1].rpartition(":")[2], 16)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what listens")
def test_nothing_listens_but_the_collectors_and_the_api_and_what_is_kept_is_its_owners(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "flowjoin.yaml").write_text(
        f"""stateDirectory: {tmp_path}/state
collectors:
  - {{protocol: tcp, address: "127.0.0.1:0"}}
  - {{protocol: udp, address: "127.0.0.1:0"}}
  - {{protocol: tls, address: "127.0.0.1:0"}}
apiServer: {{address: "127.0.0.1:0"}}
checkpoint: {{}}
exporters: [{{type: log, path: {tmp_path}/flows.jsonl, format: jsonLines}}]
""",
        encoding="utf-8",
    )
    program = run("-c", str(tmp_path / "flowjoin.yaml"))
    api = int(program.wait_line("api_ready")["addresses"][0].rpartition(":")[2])
    addresses: list[str] = program.wait_line("ready")["addresses"]
    said = {("udp" if text.startswith("udp") else "tcp", int(text.rpartition(":")[2])) for text in addresses}
    assert len(said) == 3
    assert set(ports_of(program.process.pid)) == {*said, ("tcp", api)}

    key = tmp_path / "state" / "certificates" / "ca.key"
    program.wait_until(key.exists)
    send(addresses[0].rpartition("/")[2], TrafficConfig(flows=20))
    assert program.stop() == 0, program.text
    assert len((tmp_path / "flows.jsonl").read_text(encoding="utf-8").splitlines()) >= 20
    state = tmp_path / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    kept = {tmp_path / "flows.jsonl", *(path for path in state.rglob("*") if path.is_file())}
    assert key in kept
    readable = {path.name for path in kept if path.stat().st_mode & 0o077}
    assert readable <= {"lock", "ca.crt", "client.crt"}


def test_a_configuration_that_says_nothing_is_heard_over_tls_and_asked_on_loopback() -> None:
    config = load_config("").config
    assert [(each.protocol, each.address.port, each.tls) for each in config.collectors] == [("tls", 4739, None)]
    endpoint = config.api_server.endpoint
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", 10348)
    assert "`127.0.0.1:10348`" in PAGE


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_exporter_leaves_its_server_unverified_by_itself(plugin: str) -> None:
    package = importlib.import_module(f"flowjoin_{plugin}")
    switches = [spec for spec in fields_of(package.TlsConfig) if spec.key == "insecureSkipVerify"]
    assert [spec.default for spec in switches] == [False]
    source = "".join(path.read_text(encoding="utf-8") for path in Path(package.__file__).parent.glob("*.py"))
    told = re.findall(r'log\.warning\("(\w+_not_verified)", (?:setting|cause|endpoint)', source)
    assert len(told) == 1
    assert f"`{told[0]}`" in PAGE


def test_no_other_plugin_has_such_a_switch() -> None:
    folders = (Path(__file__).parents[2] / "plugins").glob("*/src/*")
    having = {
        folder.name.removeprefix("flowjoin_")
        for folder in folders
        if any("insecure_skip_verify" in path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    }
    assert having == set(PLUGINS)
