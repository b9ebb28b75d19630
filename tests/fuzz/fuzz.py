"""Coverage-guided fuzzing with atheris: ``python tests/fuzz/fuzz.py TARGET [libFuzzer's options] [CORPUS]``.

Targets: ``decoder``, ``framer``, ``capture`` (pcap, pcapng, IPFIX Files), ``ingest`` and ``proxy`` (both forms of the
kernel side by side: they must not part). Nothing but the decoder's own error may come out, however hostile the octets;
libFuzzer itself watches time and memory. Only the plain-Python code guides the search: the compiled form goes where its
twin goes.

To make a pair of kernels takes a hundred times as long as most inputs, so a pair takes many: after each its flows have
left, which is checked, and its sessions are closed. An input may fail only after others: all that the pair has taken is
written beside the corpus's files, and ``fuzz.py again TARGET FILE`` takes it once more.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

with atheris.instrument_imports(include=["flowjoin"]):
    from flowjoin._collector.capture import CaptureReader
    from flowjoin._kernel import KernelLimits, python_kernel  # noqa: F401 - to be instrumented
    from flowjoin._model.errors import DecodeError
    from flowjoin._model.flow_key import FlowFilter
    from flowjoin._model.schemas import build_schemas
    from flowjoin._model.transport_session import TransportSession
    from flowjoin.wire import NEED_DATA, Decoder, DecoderLimits, MessageFramer, default_registry

from both_forms import BothForms
from capture_writer import ethernet, interface, ipv4, pcap, section, simple_packet, udp
from hand_made import AGENT, D1, S1, S2, data_set, message, template_set
from random_histories import EXTRA

REGISTRY = default_registry()
SCHEMAS = build_schemas(REGISTRY, extra=EXTRA)
SESSIONS = (
    TransportSession(protocol="udp", peer="192.0.2.1", peer_port=50_001),
    TransportSession(protocol="tcp", peer="2001:db8::1", peer_port=50_001),
)
INPUTS_A_PAIR = 500
HISTORY = "history"  # a line for each input, in hexadecimal digits
ROUNDS = 4  # a half is given up when it is due for the third time


def pieces(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """A control octet and some data, again and again; the lengths are the input's own."""
    at = 0
    while at + 3 <= len(octets):
        length = int.from_bytes(octets[at + 1 : at + 3], "big")
        yield octets[at], octets[at + 3 : at + 3 + length]
        at += 3 + length


def decoder(octets: bytes) -> None:
    reader = Decoder(REGISTRY, limits=DecoderLimits(sessions=2, held_octets_per_session=4_096))
    for number, (control, data) in enumerate(pieces(octets)):
        reader.receive_message(data, SESSIONS[control & 1], float(number))
        if control & 2:
            reader.expire(number * 100.0)


def framer(octets: bytes) -> None:
    reader = MessageFramer()
    try:
        for _, data in pieces(octets):
            reader.receive_data(data)
            while reader.next_message() is not NEED_DATA:
                pass
    except DecodeError:
        pass


def capture(octets: bytes) -> None:
    try:
        for _ in CaptureReader(io.BytesIO(octets)):
            pass
    except DecodeError:
        pass


class Pair:
    """Both forms of the kernel, and what they were given."""

    def __init__(self, *, is_proxy: bool = False) -> None:
        limits = KernelLimits(flows=3, string_octets=400, active_timeout=5.0, idle_timeout=7.0)
        self.forms = BothForms(REGISTRY, limits=limits, schemas=SCHEMAS, is_proxy=is_proxy)
        self.now = 0.0
        self.inputs: list[bytes] = []

    def take(self, octets: bytes) -> None:
        """One input, from the first octet to the last flow's end."""
        self.inputs.append(octets)
        for control, data in pieces(octets):
            self.now += control >> 4
            self.forms.ingest([data], [SESSIONS[control & 1]], self.now)
            if control & 2:
                self.forms.expire(self.now, 2)
            if control & 4:
                self.forms.scan(FlowFilter(), 0, 10)
            if control & 8:
                self.forms.tick(self.now)
        plain = self.forms.kernels[0]  # the other says the same
        for _ in range(ROUNDS):
            if plain.next_expiry() is None:
                break
            self.now += 100.0
            self.forms.expire(self.now, 100)
        assert plain.next_expiry() is None, "all flows have left"
        for session in {SESSIONS[control & 1] for control, _ in pieces(octets)}:
            self.forms.close_session(session)


class Pairs:
    """One pair after the other."""

    def __init__(self, make: Callable[[], Pair]) -> None:
        self._make = make
        self._pair = make()

    def take(self, octets: bytes) -> None:
        if len(self._pair.inputs) == INPUTS_A_PAIR:
            self._pair = self._make()
        try:
            self._pair.take(octets)
        except BaseException:
            Path(sys.argv[-1], HISTORY).write_text("".join(f"{each.hex()}\n" for each in self._pair.inputs))
            raise


def seeds() -> dict[str, list[bytes]]:
    """Something to begin with."""
    agents = [message(template_set(AGENT), data_set(AGENT, S1)), message(data_set(AGENT, D1, S2), sequence=1)]
    plain = ["sourceIPv4Address", "destinationIPv4Address", "protocolIdentifier", "octetTotalCount", "flowEndSeconds"]
    agents.append(message(template_set(plain, 257), data_set(plain, {"octetTotalCount": 7}, template_id=257)))
    stream = b"".join(b"\x12" + len(each).to_bytes(2, "big") + each for each in agents)
    packets = [(1.0, ethernet(ipv4(udp(each, source_port=1, destination_port=4739), protocol=17))) for each in agents]
    simple = [simple_packet(frame) for _, frame in packets]
    return {
        "decoder": [stream],
        "framer": [stream],
        "ingest": [stream],
        "proxy": [stream],
        "capture": [pcap(packets), section() + interface() + b"".join(simple), b"".join(agents)],
    }


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decoder": decoder,
    "framer": framer,
    "capture": capture,
    "ingest": Pairs(Pair).take,
    "proxy": Pairs(partial(Pair, is_proxy=True)).take,
}


def main() -> None:
    if sys.argv[1] == "again":
        _, _, name, history = sys.argv
        for line in Path(history).read_text().splitlines():
            TARGETS[name](bytes.fromhex(line))
        return
    name, corpus = sys.argv[1], Path(sys.argv[-1])
    for number, seed in enumerate(seeds()[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
