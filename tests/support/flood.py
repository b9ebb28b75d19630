"""Sends records at a rate, or as fast as the way takes them: ``python flood.py udp|tcp HOST PORT RATE SECONDS FIRST``.

Each Message has one record. One in fifty is a *probe*, a flow of its own in interface 1 that leaves at once; the others
are of 1,000 flows in interface 0. When each was sent is its end in milliseconds. ``RATE`` 0 is as fast as it goes;
``FIRST`` the first sequence number. Prints how many were sent, and in how many seconds.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

from hand_made import Record, data_set, message, template_set

NAMES = [
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "protocolIdentifier",
    "ingressInterface",
    "flowEndMilliseconds",
    "octetDeltaCount",
    "packetDeltaCount",
]
FLOWS = 1_000
PROBE_EVERY = 50
BURST_SECONDS = 0.004
SOURCE_AT, PORT_AT, INTERFACE_AT, END_AT = 20, 28, 31, 35


def record_message() -> bytearray:
    record: Record = {
        "sourceIPv4Address": "10.0.0.1",
        "destinationIPv4Address": "10.0.0.2",
        "protocolIdentifier": 17,
        "octetDeltaCount": 100,
        "packetDeltaCount": 1,
    }
    return bytearray(message(data_set(NAMES, record)))


def main(way: str, host: str, port: int, rate: int, seconds: float, first: int) -> None:
    kind = socket.SOCK_DGRAM if way == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as out:
        out.bind(("127.0.0.1", 0))
        out.connect((host, port))
        out.sendall(message(template_set(NAMES), sequence=first))
        octets = record_message()
        sent = 0
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            due = int((now - began) * rate) - sent if rate else 200
            if due <= 0:
                time.sleep(BURST_SECONDS)
                continue
            milliseconds = int(time.time() * 1000)
            struct.pack_into(">Q", octets, END_AT, milliseconds)
            burst = []
            for number in range(sent, sent + min(due, 1_000)):
                is_probe = number % PROBE_EVERY == 0
                struct.pack_into(">I", octets, 8, (first + number) & 0xFFFFFFFF)
                struct.pack_into(">I", octets, SOURCE_AT, 0x0A000000 + (first + number if is_probe else number % FLOWS))
                struct.pack_into(">I", octets, INTERFACE_AT, int(is_probe))
                if way == "udp":
                    out.send(octets)
                else:
                    burst.append(bytes(octets))
            if burst:
                out.sendall(b"".join(burst))
            sent += min(due, 1_000)
        took = time.monotonic() - began
        if way == "tcp":
            out.shutdown(socket.SHUT_WR)
            out.recv(1)  # the collector closes when it has read everything
    print(sent, took)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
