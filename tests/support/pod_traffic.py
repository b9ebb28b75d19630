"""What Pods say to one another: ``python pod_traffic.py serve`` there, ``python pod_traffic.py talk PLAN`` here.

``record FILE`` keeps the datagrams that come to port 4739, each behind its length.

PLAN is a JSON object: ``tcp`` and ``udp`` are lists of [host, port, rounds, copies], ``echo`` a list of hosts,
``denied`` one of [host, port] where a connection is refused and a datagram finds no way. After
each round ``talk`` prints a line and waits for one; connections of fewer rounds are closed after their last. A server
answers with twice the octets. At the end ``talk`` prints the port of each connection, so that its flow can be found.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Final

PORTS: Final = (8080, 5353)
RECORDED_PORT: Final = 4739
PATIENCE: Final = 60.0
_OWN_PORTS: Final = itertools.count(40000)
_ASKED: Final = 700
_OF_A_DATAGRAM: Final = 300


def serve() -> None:
    """Answer, over both families, for ever."""
    listener = socket.create_server(("::", PORTS[0]), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.bind(("::", PORTS[1]))
    threading.Thread(target=_answer_datagrams, args=(datagrams,), daemon=True).start()
    print("up", flush=True)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=_answer_stream, args=(stream,), daemon=True).start()


def _answer_stream(stream: socket.socket) -> None:
    with stream:
        while octets := stream.recv(65536):
            stream.sendall(octets * 2)


def _answer_datagrams(datagrams: socket.socket) -> None:
    while True:
        octets, sender = datagrams.recvfrom(2000)
        datagrams.sendto(octets * 2, sender)


def talk(plan: dict[str, list[list[object]]]) -> None:
    """Do what the plan says."""
    open_now: list[tuple[socket.socket, int]] = []
    made: list[list[object]] = []
    for kind in ("tcp", "udp"):
        for host, port, rounds, copies in plan.get(kind, ()):
            for _ in range(int(str(copies))):
                opened = _opened(kind, str(host), int(str(port)))
                made.append([kind, *opened.getsockname()[:2], host, port])
                open_now.append((opened, int(str(rounds))))
    for host in plan.get("echo", ()):
        _echo(str(host))
        made.append(["echo", "", 0, host, 0])
    for host, port in plan.get("denied", ()):
        made.extend(_denied(str(host), int(str(port))))
    number = 0
    while open_now:
        number += 1
        for opened, _ in open_now:
            _exchange(opened)
        for opened, rounds in open_now:
            if rounds <= number:
                opened.close()
        open_now = [(opened, rounds) for opened, rounds in open_now if rounds > number]
        print(json.dumps({"round": number}), flush=True)
        sys.stdin.readline()
    print(json.dumps(made), flush=True)


def _bound(kind: str, host: str) -> socket.socket:
    """A socket with a port of its own: a Service and its endpoint asked from one port would meet in NAT."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    made.bind(("", next(_OWN_PORTS)))
    return made


def _opened(kind: str, host: str, port: int) -> socket.socket:
    opened = _bound(kind, host)
    opened.connect((host, port))
    return opened


def _exchange(opened: socket.socket) -> None:
    if opened.type == socket.SOCK_DGRAM:
        opened.send(b"q" * _OF_A_DATAGRAM)
        opened.recv(2000)
        return
    opened.sendall(b"q" * _ASKED)
    left = 2 * _ASKED
    while left:
        left -= len(opened.recv(left))


def _denied(host: str, port: int) -> list[list[object]]:
    made: list[list[object]] = []
    with _bound("tcp", host) as stream, _bound("udp", host) as datagrams:
        made.append(["denied tcp", *stream.getsockname()[:2], host, port])
        try:
            stream.connect((host, port))
        except ConnectionRefusedError:
            pass
        else:
            raise AssertionError(f"{host} port {port} is open")
        datagrams.connect((host, port))
        for octets in (b"d" * 30, b"d" * 40):
            datagrams.send(octets)
        made.append(["denied udp", *datagrams.getsockname()[:2], host, port])
    return made


def _echo(host: str) -> None:
    """Three echoes, as ``ping`` sends them."""
    is_new = ":" in host
    family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if is_new else (socket.AF_INET, socket.IPPROTO_ICMP)
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        raw.settimeout(PATIENCE)
        raw.connect((host, 0))
        for sequence in range(3):
            raw.send(_request(128 if is_new else 8, sequence))
            answer = b""
            while not _is_answer(answer, is_new, sequence):
                answer = raw.recv(2000)


def _request(kind: int, sequence: int) -> bytes:
    body = struct.pack("!HH", 0x666A, sequence) + b"e" * 56
    octets = struct.pack("!BBH", kind, 0, 0) + body
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!BBH", kind, 0, ~total & 0xFFFF) + body


def _is_answer(octets: bytes, is_new: bool, sequence: int) -> bool:
    inner = octets if is_new else octets[20:]
    return inner[:1] == (b"\x81" if is_new else b"\0") and inner[4:8] == struct.pack("!HH", 0x666A, sequence)


def record(file: str) -> None:
    """Keep datagrams, for ever."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as socket_, Path(file).open("wb", buffering=0) as kept:
        socket_.bind(("0.0.0.0", RECORDED_PORT))
        print("up", flush=True)
        while True:
            datagram = socket_.recv(65536)
            kept.write(len(datagram).to_bytes(4, "big") + datagram)


def recorded(file: Path) -> list[bytes]:
    """What ``record`` kept."""
    octets, datagrams, at = file.read_bytes(), [], 0
    while at < len(octets):
        length = int.from_bytes(octets[at : at + 4], "big")
        datagrams.append(octets[at + 4 : at + 4 + length])
        at += 4 + length
    return datagrams


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "record":
        record(sys.argv[2])
    else:
        talk(json.loads(sys.argv[2]))
