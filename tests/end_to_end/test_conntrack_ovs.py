"""Real connections through a real Open vSwitch, its data path in user space, in network namespaces of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Who talks: a data path in user space sees checksums that were left to hardware as wrong ones.
HOST = """
import array, fcntl, socket, struct, sys
value = array.array("B", struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM: off
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, 0x8946, struct.pack("16sP8x", b"eth0", value.buffer_info()[0]))
udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
udp.settimeout(60); tcp.settimeout(60)
if sys.argv[1] == "server":
    udp.bind(("10.78.0.2", 5353)); tcp.bind(("10.78.0.2", 8080)); tcp.listen(); print("up", flush=True)
    octets, sender = udp.recvfrom(2000); udp.sendto(octets, sender)
    stream, _ = tcp.accept(); stream.recv(1000); stream.sendall(b"r"); stream.recv(1000)
else:
    udp.sendto(b"x" * 100, ("10.78.0.2", 5353)); udp.recv(2000)
    tcp.connect(("10.78.0.2", 8080)); tcp.sendall(b"q"); tcp.recv(1000)
    print("talked", flush=True); sys.stdin.read(); tcp.close()
"""
FLOWS = (
    "priority=10,arp,actions=NORMAL",
    "priority=5,ip,ct_state=-trk,actions=ct(table=1,zone=65520)",
    "table=1,ip,ct_state=+new,actions=ct(commit,zone=65520,"
    "exec(load:0x42->NXM_NX_CT_MARK[],load:0x7->NXM_NX_CT_LABEL[0..31])),NORMAL",
    "table=1,ip,ct_state=+est,actions=NORMAL",
)


class Switch:
    """Two hosts and the switch between them."""

    def __init__(self, require: Callable[[str], str], directory: Path) -> None:
        self._programs = {
            name: require(name)
            for name in ("ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
        }
        self._directory = directory
        self.switch, self.client, self.server = (f"fj{letter}{os.getpid()}" for letter in "wcs")
        self.control = directory / "vswitchd.ctl"
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {f"OVS_{name}DIR": str(directory) for name in ("RUN", "LOG", "DB", "SYSCONF")}

    def make_hosts(self) -> None:
        for name in (self.switch, self.client, self.server):
            self.run("ip", "netns", "add", name)
        for number, name in ((1, self.client), (2, self.server)):
            pair = ("type", "veth", "peer", "name", "eth0", "netns", name)
            self.run("ip", "link", "add", f"v{number}", "netns", self.switch, *pair)
            self.run("ip", "-n", self.switch, "link", "set", f"v{number}", "up")
            self.run("ip", "-n", name, "link", "set", "eth0", "up")
            self.run("ip", "-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")

    def start(self) -> None:
        database = f"unix:{self._directory}/db.sock"
        schema = Path("/usr/share/openvswitch/vswitch.ovsschema")
        self.run("ovsdb-tool", "create", f"{self._directory}/conf.db", str(schema))
        self._daemon(
            "ovsdb-server", f"{self._directory}/conf.db", f"--remote=p{database}", f"--unixctl={self.control}.db"
        )
        vsctl = ("ovs-vsctl", f"--db={database}", "--timeout=60")
        deadline = time.monotonic() + 60
        while not (self._directory / "db.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.run(*vsctl, "--no-wait", "init")
        self._daemon("ovs-vswitchd", database, f"--unixctl={self.control}", inside=self.switch)
        bridge = ("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        self.run(*vsctl, *bridge, "--", "add-port", "br0", "v1", "--", "add-port", "br0", "v2")
        for flow in FLOWS:
            self.run("ovs-ofctl", "add-flow", f"{self._directory}/br0.mgmt", flow)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()
        for name in (self.switch, self.client, self.server):
            subprocess.run([self._programs["ip"], "netns", "del", name], capture_output=True, check=False)

    def inside(self, name: str, *command: str) -> list[str]:
        return [self._programs["ip"], "netns", "exec", name, *command]

    def run(self, program: str, *arguments: str) -> None:
        command = [self._programs[program], *arguments]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=100, env=self._environment)

    def _daemon(self, program: str, *arguments: str, inside: str = "") -> None:
        command = [self._programs[program], *arguments, "--no-chdir", "-vconsole:off"]
        whole = self.inside(inside, *command) if inside else command
        made = subprocess.Popen(whole, env=self._environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._daemons.append(made)


@pytest.fixture
def switch(require_program: Callable[[str], str]) -> Iterator[Switch]:
    directory = Path(tempfile.mkdtemp(prefix="fjovs"))  # a socket's path has 107 octets
    try:
        made = Switch(require_program, directory)
        try:
            made.make_hosts()
        except subprocess.CalledProcessError as exc:
            made.stop()
            pytest.skip(f"no network namespaces here: {exc.stderr.strip()}")
        try:
            made.start()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
            made.stop()
            pytest.skip(f"Open vSwitch does not run here: {exc.stderr}")
        yield made
        made.stop()
    finally:
        shutil.rmtree(directory)


@pytest.mark.slow
def test_connections_of_a_data_path_that_counts_nothing_are_told_without_counters(
    switch: Switch, tmp_path: Path
) -> None:
    config = tmp_path / "flowjoin.yaml"
    config.write_text(
        f"stateDirectory: {tmp_path}/state\napiServer: {{address: none}}\n"
        f"sources: [{{type: conntrack, dumper: ovs-appctl, ovsTarget: {switch.control}, zones: [65520],\n"
        "            pollInterval: 1s, activeTimeout: 1s, idleTimeout: 2s}]\n"
        f"exporters: [{{type: log, path: {tmp_path}/flows, format: jsonLines}}]\n"
    )
    host = [sys.executable, "-c", HOST]
    server = subprocess.Popen(switch.inside(switch.server, *host, "server"), stdout=subprocess.PIPE, text=True)
    client: subprocess.Popen[str] | None = None
    program: subprocess.Popen[str] | None = None
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        client = subprocess.Popen(
            switch.inside(switch.client, *host, "client"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "talked\n"
        program = subprocess.Popen(
            [sys.executable, "-m", "flowjoin", "run", "-c", str(config)], stderr=subprocess.PIPE, text=True
        )
        rows = wait_for(tmp_path / "flows")
    finally:
        for one in (client, server):
            if one is not None:
                one.kill()
                one.communicate()
        if program is not None:
            program.send_signal(signal.SIGTERM)
            _, errors = program.communicate(timeout=100)
    assert program.returncode == 0, errors
    assert '"no_counters"' in errors
    assert not [name for name in rows[6] if name.endswith("Count")]
    assert rows[6]["tcpState"] == "ESTABLISHED"
    for row in rows.values():
        assert (row["sourceIPv4Address"], row["destinationIPv4Address"]) == ("10.78.0.1", "10.78.0.2")


def wait_for(path: Path) -> dict[object, dict[str, object]]:
    """A row of each protocol, once there are two."""
    deadline = time.monotonic() + 100
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = {row["protocolIdentifier"]: row for row in map(json.loads, lines)}
        if set(rows) == {6, 17}:
            return rows
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)
