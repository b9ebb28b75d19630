"""Runs real exporters and collectors, and reads what the collectors say in their own formats."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from capture_writer import ethernet, ipv4, pcap, udp
from mixed_traffic import Way
from waiting import wait_until

PATIENCE = 30.0


def softflowd_command(program: str, capture: Path, port: int, *options: str) -> list[str]:
    """Reads a capture, sends IPFIX, and ends by itself; without ``-c none`` it would wait for ever."""
    pid_file = str(capture.with_suffix(".softflowd.pid"))
    read = ["-r", str(capture), "-a", "-c", "none", "-p", pid_file, "-d"]
    return [program, *read, "-v", "10", "-n", f"127.0.0.1:{port}", *options]


def pmacctd_command(program: str, capture: Path, port: int) -> list[str]:
    """Reads a capture, sends IPFIX by its nfprobe plugin, and ends by itself."""
    configuration = capture.with_suffix(".pmacctd.conf")
    configuration.write_text(
        f"""daemonize: false
pcap_savefile: {capture}
plugins: nfprobe
nfprobe_receiver: 127.0.0.1:{port}
nfprobe_version: 10
nfprobe_timeouts: tcp=1:tcp.rst=1:tcp.fin=1:udp=1:icmp=1:general=1:maxlife=2:expint=1
nfprobe_source_ip: 127.0.0.1
aggregate: src_host, dst_host, src_port, dst_port, proto, tos, tcpflags
pidfile: {capture.with_suffix(".pmacctd.pid")}
""",
        encoding="utf-8",
    )
    return [program, "-f", str(configuration)]


def nfdump_reads(nfcapd: str, nfdump: str, folder: Path, datagrams: Sequence[bytes]) -> list[Way]:
    """What nfcapd stores of these datagrams, as nfdump prints it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    process = subprocess.Popen(
        [nfcapd, "-b", "127.0.0.1", "-p", str(port), "-w", str(folder), "-t", "60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _receive_queue(port) is not None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            _send_all(sender, datagrams, port)
        wait_until(lambda: _receive_queue(port) == 0)
    finally:
        process.terminate()  # it closes its file then
        process.wait(PATIENCE)
    ways = []
    for file in sorted(folder.glob("nfcapd.2*")):
        printed = subprocess.run(
            [nfdump, "-r", str(file), "-q", "-o", "json"],
            check=True,
            capture_output=True,
            text=True,
            env={"TZ": "UTC"},
            timeout=PATIENCE,
        ).stdout
        for flow in _json_objects(printed):
            way = Way(
                source=flow.get("src4_addr") or flow["src6_addr"],
                destination=flow.get("dst4_addr") or flow["dst6_addr"],
                protocol=flow["proto"],
                source_port=flow.get("src_port", 0),
                destination_port=flow["dst_port"]
                if "dst_port" in flow
                else flow["icmp_type"] * 256 + flow["icmp_code"],
                packets=flow["in_packets"],
                octets=flow["in_bytes"],
                start=_milliseconds(flow["first"]),
                end=_milliseconds(flow["last"]),
            )
            ways += both_ways(way, flow.get("out_packets", 0), flow.get("out_bytes", 0))
    return ways


def nfacctd_reads(nfacctd: str, folder: Path, datagrams: Sequence[bytes]) -> list[dict[str, object]]:
    """What nfacctd makes of these datagrams: its JSON objects, one for each set of keys."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    printed = folder / "nfacctd.json"
    configuration = folder / "nfacctd.conf"
    configuration.write_text(
        f"""daemonize: false
nfacctd_ip: 127.0.0.1
nfacctd_port: {port}
plugins: print
print_output: json
print_output_file: {printed}
print_output_file_append: true
print_refresh_time: 1
aggregate: src_host, dst_host, src_port, dst_port, proto
pidfile: {folder / "nfacctd.pid"}
""",
        encoding="utf-8",
    )
    log = folder / "nfacctd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [nfacctd, "-f", str(configuration)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        # Its print plugin is a process of its own; what it is given before it has begun is lost at the end.
        wait_until(lambda: b"Purging cache - END" in log.read_bytes())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            _send_all(sender, datagrams, port)
        wait_until(lambda: _receive_queue(port) == 0)
    finally:
        process.send_signal(signal.SIGINT)  # it writes what it holds; SIGTERM does not stop it
        process.wait(PATIENCE)
    return [json.loads(line) for line in printed.read_text(encoding="utf-8").splitlines()]


def tshark_reads(tshark: str, folder: Path, datagrams: Sequence[bytes]) -> list[dict[str, bytes]]:
    """The data records in these datagrams: by tshark's names of the fields, their octets on the wire."""
    capture = folder / "exported.pcap"
    capture.write_bytes(pcap([(1_700_000_000 + n, ethernet(ipv4(udp(octets)))) for n, octets in enumerate(datagrams)]))
    printed = subprocess.run(
        # By itself it reads Templates of up to 60 fields.
        [tshark, "-r", str(capture), "-d", "udp.port==4739,cflow", "-o", "cflow.max_template_fields:0", "-T", "pdml"],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    ).stdout
    records = []
    for flow in ElementTree.fromstring(printed).iter("field"):
        if flow.get("show", "").startswith("Flow ") and flow.get("name") == "":
            fields = {}
            for field in flow.iter("field"):
                if field.get("name") and field.get("value") and field.get("unmaskedvalue") is None:  # no single bits
                    fields.setdefault(field.get("name", ""), bytes.fromhex(field.get("value", "")))
            records.append(fields)
    return records


def both_ways(way: Way, reverse_packets: int, reverse_octets: int, reverse_icmp: int | None = None) -> list[Way]:
    """The directions of a biflow (RFC 5103) that have packets."""
    is_icmp = way.protocol in (1, 58)
    icmp = way.destination_port if reverse_icmp is None else reverse_icmp
    reverse = Way(
        source=way.destination,
        destination=way.source,
        protocol=way.protocol,
        source_port=0 if is_icmp else way.destination_port,
        destination_port=icmp if is_icmp else way.source_port,
        packets=reverse_packets,
        octets=reverse_octets,
        start=way.start,
        end=way.end,
    )
    return [direction for direction in (way, reverse) if direction.packets]


def _json_objects(text: str) -> Iterator[dict]:
    """nfdump writes objects with a comma between, and not always the brackets of a list."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _send_all(sender: socket.socket, datagrams: Sequence[bytes], port: int) -> None:
    """A few at a time: a socket's default buffer holds about 90 of them."""
    for number, datagram in enumerate(datagrams):
        if number % 32 == 31:
            wait_until(lambda: _receive_queue(port) == 0)
        sender.sendto(datagram, ("127.0.0.1", port))


def _receive_queue(port: int) -> int | None:
    """Octets that wait at the UDP socket bound to 127.0.0.1:port; None while there is none."""
    local = f"0100007F:{port:04X}"
    for line in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]:
        columns = line.split()
        if columns[1] == local:
            return int(columns[4].split(":")[1], 16)
    return None
