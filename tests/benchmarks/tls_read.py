"""What reading a TLS record costs: ``python tests/benchmarks/tls_read.py``; CPU time, no socket, a Message a record."""

from __future__ import annotations

import ssl
import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import certificates

from flowjoin._certificates.material import TlsMaterial
from flowjoin._certificates.server_context import server_context
from flowjoin._collector.tls_stream import TlsReceiveStream

RECORDS = 20_000
RECORD = b"x" * 250


class Client(trio.abc.HalfCloseableStream):
    """The server's transport, with a client behind it that has sent everything already."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._sent: memoryview | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._incoming.write(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._sent is None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return self._outgoing.read()
            handshake = self._outgoing.read()
            for _ in range(RECORDS):
                self._tls.write(RECORD)
            self._sent = memoryview(self._outgoing.read())
            return handshake
        size = max_bytes or 65536
        piece, self._sent = bytes(self._sent[:size]), self._sent[size:]
        return piece


async def measure(kind: str, context: ssl.SSLContext, client: ssl.SSLContext) -> tuple[float, int]:
    transport = Client(client)
    stream: TlsReceiveStream | trio.SSLStream[Client] = (
        TlsReceiveStream(transport, context) if kind == "ours" else trio.SSLStream(transport, context, server_side=True)
    )
    await stream.do_handshake()
    octets = reads = 0
    began = time.process_time()
    while octets < RECORDS * len(RECORD):
        octets += len(await stream.receive_some(65536))
        reads += 1
    return (time.process_time() - began) / RECORDS * 1e6, reads


if __name__ == "__main__":
    pair = certificates.server()
    authority = certificates.authority().certificate
    server = server_context(TlsMaterial(certificate=pair.certificate, key=pair.key, client_ca=authority))
    with tempfile.TemporaryDirectory() as directory:
        shown = certificates.client_context(Path(directory), certificates.client())
    for _ in range(5):
        for kind in ("ours", "trio.SSLStream"):
            microseconds, reads = trio.run(measure, kind, server, shown)
            print(f"{kind:15} {microseconds:6.2f} us a record, {reads} reads")
