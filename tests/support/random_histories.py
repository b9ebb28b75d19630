"""Random histories of a kernel: Templates redefined, families mixed, halves in any order, clocks, limits, damage.

Values come from small sets, so that flows meet, strings repeat and tables are full.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from both_forms import BothForms
from hand_made import message

from flowjoin._kernel import KernelLimits
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement
from flowjoin._model.schemas import AGGREGATED_NAMES, PLAIN_NAMES
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import DecoderLimits, default_registry

__all__ = ["History"]

REGISTRY = default_registry()
# one of every storage, rule and type
EXTRA = [
    "samplingProbability",
    "dataRecordsReliability",
    "observationTimeMicroseconds",
    "observationTimeNanoseconds",
    "flowStartMicroseconds",
    "mplsTopLabelStackSection",
    "interfaceName",
    "postOctetDeltaCount",
    "postPacketDeltaCount",
    "postOctetTotalCount",
    "bgpNextHopIPv6Address",
    "basicList",
    "minimumTTL",
    "staMacAddress",
    "ingressNetworkPolicyRulePriority",
    "absoluteError",
    "wlanSSID",
]
TIMES = [
    f"flow{edge}{unit}"
    for edge in ("Start", "End")
    for unit in (
        "Seconds",
        "Milliseconds",
        "Microseconds",
        "Nanoseconds",
        "SysUpTime",
        "DeltaMicroseconds",
    )
] + ["systemInitTimeMilliseconds"]
COUNTERS = [
    f"{way}{unit}{kind}Count"
    for way in ("", "reverse")
    for unit in ("Octet" if way else "octet", "Packet" if way else "packet")
    for kind in ("Delta", "Total")
]
ALIASES = ["initiatorOctets", "initiatorPackets", "responderOctets", "responderPackets"]
ANTREA = [name for name in AGGREGATED_NAMES if "From" not in name and "hroughput" not in name]
CORE = [
    "flowType",
    "flowStartSeconds",
    "flowEndSeconds",
    "sourcePodName",
    "destinationPodName",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyRuleAction",
]
LIKELY = sorted({
    *ANTREA,
    *(name.replace("IPv4", "IPv6") for name in ANTREA),
    *PLAIN_NAMES,
    *(name.replace("IPv4", "IPv6") for name in PLAIN_NAMES),
    *EXTRA,
    *TIMES,
    *ALIASES,
    "paddingOctets",
    "applicationName",
})  # fmt: skip
SESSIONS = [
    TransportSession(protocol="udp", peer="192.0.2.1", peer_port=50_001, local="192.0.2.100", local_port=4739),
    TransportSession(protocol="udp", peer="::ffff:192.0.2.2", peer_port=50_001, local="192.0.2.100", local_port=4739),
    TransportSession(protocol="tcp", peer="2001:db8::1", peer_port=50_001, local="::", local_port=4739, serial=1),
    TransportSession(protocol="file"),
]
TEXTS = ["", "", "pod1", "pod2", "a" * 20, "ünïcödé", "b" * 254, "c" * 255, "d" * 300, "{}", '{"1":{"a":1}}', '{"0":2}']
OCTETS = [b"", b"\x00", b"\xff\xfe", b"pod1", b"\xc3\x28bad", b"nul\x00\x00", b"pod2\x00"]
SECONDS = [0, 1, 2, 5, 9, 10, 12, 1_700_000_000, 2**32 - 1]
NUMBERS = [0, 0, 1, 2, 3, 4, 5, 100, 1000, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
SMALL = {
    "flowType": [1, 2, 2, 2, 3, 4, 4, 7],
    "ingressNetworkPolicyRuleAction": [0, 0, 0, 1, 2, 3],
    "egressNetworkPolicyRuleAction": [0, 0, 0, 1, 2, 3],
    "protocolIdentifier": [1, 6, 17, 58],
    "sourceTransportPort": [0, 80],
    "destinationTransportPort": [80],
    "proxySnatPort": [0, 80],
    "ingressInterface": [0, 1],
    "originalObservationDomainId": [0, 1],
}


class History:
    """One history: the same for the same seed."""

    def __init__(self, seed: int, *, is_proxy: bool = False) -> None:
        self.random = random.Random(seed)
        self.is_proxy = is_proxy
        self.now = self.latest = 0.0
        self.is_enriched = self.random.random() < 0.4
        choose = self.random.choice
        self.forms = BothForms(
            REGISTRY,
            limits=KernelLimits(
                flows=choose([1, 2, 4, 8, 1000, 1000, 1000, 1000]),
                string_octets=choose([0, 10, 100, 600, 10_000_000, 10_000_000, 10_000_000, 10_000_000]),
                active_timeout=choose([0.5, 3.0, 6.0]),
                idle_timeout=choose([0.7, 3.0, 9.0]),
            ),
            decoder_limits=DecoderLimits(
                template_lifetime=choose([5.0, 1800.0, 1800.0]),
                idle_timeout=choose([8.0, 1800.0]),
                domains_per_session=choose([1, 2, 1024]),
                domains=choose([2, 1024]),
                sessions=choose([2, 100]),
                held_octets_per_session=choose([1000, 100_000]),
            ),
            extra=EXTRA if self.random.random() < 0.7 else (),
            is_enriched=self.is_enriched,
            is_proxy=is_proxy,
        )
        self.templates: dict[tuple[int, int, int], list[tuple[InformationElement, int]]] = {}
        self.sequences: dict[tuple[int, int], int] = {}
        self.batches: list[FlowBatch] = []
        self.sent: list[bytes] = [message()]

    def run(self, steps: int, *, ends: bool = True) -> None:
        """Take random steps; in the end everything leaves."""
        for _ in range(steps):
            action = self.random.choices(
                [self.define, self.send, self.hostile, self.pass_time, self.expire, self.ask, self.enrich, self.close],
                [4, 60, 5, 10, 12, 4, 8, 1],
            )[0]
            action()
        if ends:
            self.forms.expire(self.now + 1000, 10_000)
            self.forms.expire(self.now + 2000, 10_000)

    def define(self) -> None:
        choose = self.random.choice
        session, domain, template_id = choose([0, 0, 1, 2, 3]), choose([1, 1, 1, 2, 3]), choose([256, 257, 258])
        fields = self.fields()
        self.templates[session, domain, template_id] = fields
        body = struct.pack(">HH", template_id, len(fields))
        for element, length in fields:
            enterprise = element.enterprise_number
            body += struct.pack(">HH", element.element_id | (0x8000 if enterprise else 0), length)
            body += struct.pack(">I", enterprise) if enterprise else b""
        sets = [struct.pack(">HH", 2, 4 + len(body)) + body]
        if self.random.random() < 0.3:
            sets.append(self.data_set(session, domain, template_id))
        if self.random.random() < 0.1:  # an Options Template in its place, which says when the exporter started
            body = struct.pack(">HHHHHHH", template_id, 2, 1, 143, 4, 160, 8)
            sets = [struct.pack(">HH", 3, 4 + len(body)) + body]
            self.templates[session, domain, template_id] = [
                (REGISTRY.by_name("meteringProcessId"), 4),
                (REGISTRY.by_name("systemInitTimeMilliseconds"), 8),
            ]
        self.deliver(session, domain, sets, 0)

    def fields(self) -> list[tuple[InformationElement, int]]:
        chance, choose = self.random.random, self.random.choice
        version = choose(["4", "4", "6"])
        addresses = [f"sourceIPv{version}Address", f"destinationIPv{version}Address"]
        kind = chance()
        if kind < 0.5:  # like an agent's
            names = [*CORE, *addresses, *COUNTERS, "tcpState", "httpVals", "flowEndReason", f"proxySnatIPv{version}"]
            names += ["proxySnatPort", "sourceTransportPort", "destinationTransportPort", "protocolIdentifier"]
        elif kind < 0.9:  # like a router's
            names = [*addresses, *self.random.sample(COUNTERS, self.random.randrange(5)), "protocolIdentifier"]
            names += self.random.sample(TIMES, self.random.randrange(4))
            names += [*self.random.sample(ALIASES, self.random.randrange(2)), "tcpControlBits", "ingressInterface"]
        else:
            names = []
        names += self.random.sample(LIKELY, self.random.randrange(12))
        if chance() < 0.1:
            names += [
                name.replace("IPv4", "IPvX").replace("IPv6", "IPv4").replace("IPvX", "IPv6") for name in addresses
            ]
        if chance() < 0.2:
            del names[self.random.randrange(len(names) or 1) :][:1]
        if chance() < 0.3:
            self.random.shuffle(names)
        elements = [REGISTRY.by_name(name) for name in names or ["flowType"]]
        if self.is_proxy:  # which keeps what nobody knows
            unknown = [ElementRegistry.unknown(64_000, choose([1, 2]), choose([1, 16, VARIABLE_LENGTH])) for _ in "12"]
            elements += self.random.sample(unknown, choose([0, 0, 1, 2]))
        fields = []
        for element in elements:
            length = element.length
            if element.data_type is DataType.STRING:
                length = choose([VARIABLE_LENGTH] * 8 + [6])
            elif chance() < (0.15 if self.is_proxy else 0.05):
                length = choose([0, 1, 2, 3, 4, 5, 7, 8, 16, VARIABLE_LENGTH])
            fields.append((element, length))
        if all(length == 0 for _, length in fields):
            fields.append((REGISTRY.by_name("flowEndReason"), 1))
        return fields

    def value(self, element: InformationElement, length: int) -> bytes:
        choose = self.random.choice
        if length == VARIABLE_LENGTH:
            octets = choose(OCTETS) if self.random.random() < 0.1 else choose(TEXTS).encode()
            if len(octets) < 255 and self.random.random() < 0.95:
                return bytes([len(octets)]) + octets
            return b"\xff" + struct.pack(">H", len(octets)) + octets
        name, data_type = element.name, element.data_type
        if data_type is DataType.STRING:
            return choose(OCTETS)[:length].ljust(length, b"\0")
        if "Address" in name or name.startswith(("destinationCluster", "destinationService", "proxySnatIP")):
            return bytes(length) if self.random.random() < 0.2 else (b"\x0a" * length)[:-1] + bytes([choose([1, 2])])
        if data_type in (DataType.FLOAT32, DataType.FLOAT64) and length in (4, 8):
            return struct.pack(
                ">f" if length == 4 else ">d", choose([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf")])
            )
        if name in SMALL:
            number = choose(SMALL[name])
        elif "Seconds" in name and "Milli" not in name and "Micro" not in name and "Nano" not in name:
            number = choose(SECONDS)
        elif "Milliseconds" in name:
            number = choose(SECONDS) * 1000 + choose([0, 1])
        elif data_type in (DataType.DATE_TIME_MICROSECONDS, DataType.DATE_TIME_NANOSECONDS):
            number = (choose([0, 2_208_988_800, 2_208_988_801, 3_908_988_800, 5]) << 32) + choose(
                [0, 1, 2**31, 2**32 - 1]
            )
        elif self.random.random() < 0.5:
            number = choose([0, 1, 50, 100, 150, 1000, 5000])
        else:
            number = choose(NUMBERS)
        return (number & ((1 << 8 * length) - 1)).to_bytes(length, "big") if length else b""

    def data_set(self, session: int, domain: int, template_id: int) -> bytes:
        fields = self.templates.get((session, domain, template_id), [])
        records = self.random.choice([0, 1, 1, 1, 2, 3])
        body = b"".join(self.value(element, length) for _ in range(records) for element, length in fields)
        self.records = records
        if self.random.random() < 0.1:
            body += bytes(self.random.randrange(4))
        if self.random.random() < 0.03:
            body = body[: self.random.randrange(len(body) + 1)]
        return struct.pack(">HH", template_id, (4 + len(body)) & 0xFFFF) + body

    def send(self) -> None:
        if not self.templates:
            return
        session, domain, template_id = self.random.choice(sorted(self.templates))
        sets, records = [], 0
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            others = [key[2] for key in sorted(self.templates) if key[:2] == (session, domain)]
            sets.append(self.data_set(session, domain, self.random.choice([template_id, *others])))
            records += self.records
        if self.random.random() < 0.02:
            sets.append(self.data_set(session, domain, 300))
        self.deliver(session, domain, sets, records)

    def deliver(self, session: int, domain: int, sets: list[bytes], records: int) -> None:
        key = (session, domain)
        sequence = self.sequences.get(key, 0)
        if self.random.random() < 0.1:
            sequence = (sequence + self.random.choice([-3, -1, 1, 2, 10, 2**20, 2**31])) % 2**32
        self.sequences[key] = (sequence + records) % 2**32
        export_time = self.random.choice([1_700_000_000, 1_700_000_000, 0, 2**32 - 1])
        octets = message(*sets, export_time=export_time, sequence=sequence, domain=domain)
        self.sent.append(octets)
        del self.sent[:-10]
        given: bytes | memoryview = octets
        if self.random.random() < 0.2:
            given = memoryview(octets + b"after")
        self.forms.ingest([given], [SESSIONS[session]], self.now)

    def hostile(self) -> None:
        """What was sent before, damaged; several in one call, from equal but not identical sessions."""
        messages: list[bytes | memoryview] = []
        sessions = []
        for _ in range(self.random.randrange(1, 4)):
            octets = bytearray(self.random.choice(self.sent))
            for _ in range(self.random.randrange(4)):
                octets[self.random.randrange(len(octets))] = self.random.randrange(256)
            messages.append(
                bytes(octets[: self.random.choice([len(octets)] * 4 + [self.random.randrange(len(octets))])])
            )
            known = self.random.choice(SESSIONS)
            sessions.append(
                TransportSession(
                    protocol=known.protocol,
                    peer=known.peer,
                    peer_port=known.peer_port,
                    local=known.local,
                    local_port=known.local_port,
                    serial=known.serial,
                )
            )
        self.forms.ingest(messages, sessions, self.now)

    def pass_time(self) -> None:
        self.now += self.random.choice([0.0, 0.1, 0.5, 1.0, 3.0, 6.0, -1.0])
        self.latest = max(self.latest, self.now)
        if self.random.random() < 0.5:
            self.forms.tick(self.now)

    def expire(self) -> None:
        self.batches = [*self.batches, *self.forms.expire(self.now, self.random.choice([0, 1, 2, 100]))][-4:]

    def ask(self) -> None:
        filters = [
            FlowFilter(),
            FlowFilter(source="10.10.10.1"),
            FlowFilter(destination="a0a::1", protocol_identifier=6),
            FlowFilter(source_port=80),
            FlowFilter(source="nowhere"),
        ]
        cursor: int | None = 0
        flow_filter = self.random.choice(filters)
        while cursor is not None:
            cursor = self.forms.scan(flow_filter, cursor, self.random.choice([1, 3, 100]))
        for source in ("10.10.10.1", "10.10.10.2", "a0a:a0a:a0a:a0a:a0a:a0a:a0a:a01", "nowhere"):
            for exporter in (None, "192.0.2.1", "2001:db8::1"):
                self.forms.lookup(
                    FlowKey(
                        source=source,
                        destination=source,
                        protocol_identifier=6,
                        source_port=80,
                        destination_port=80,
                        original_exporter=exporter,
                        observation_domain_id=1,
                    )
                )

    def enrich(self) -> None:
        if not self.is_enriched or not self.batches:
            return
        batch = self.random.choice(self.batches)
        if len(batch) > 1 and self.random.random() < 0.3:
            batch = batch.take([len(batch) - 1, 0])
        gifts: dict[str, list[Any]] = {
            "sourcePodName": ["", "pod1", "enriched"],
            "destinationNodeName": ["node"],
            "sourcePodUUID": [bytes(16), b"\x01" * 16],
            "destinationServicePort": [0, 443],
            "egressName": ["egress", "a" * 50],
            "flowDirection": [0, 1, 255],
            "bgpSourceAsNumber": [0, 64_512],
            "sourceMacAddress": ["00:00:00:00:00:00", "02:00:00:00:00:01"],
            "bgpNextHopIPv6Address": ["::", "2001:db8::7"],
            "dataRecordsReliability": [True, False],
            "samplingProbability": [0.0, 0.25],
            "ingressNetworkPolicyRulePriority": [-5, 0],
            "basicList": [b"", b"list"],
            "octetTotalCount": [1],
        }
        names = [name for name in gifts if name in batch.schema and name != "octetTotalCount"]
        names = self.random.sample(names, min(len(names), 4)) + (
            ["octetTotalCount"] if self.random.random() < 0.05 else []
        )
        self.forms.store_enriched(
            batch, {name: [self.random.choice(gifts[name]) for _ in range(len(batch))] for name in names}
        )

    def close(self) -> None:
        self.forms.close_session(self.random.choice(SESSIONS))
