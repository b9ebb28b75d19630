import socket
from typing import Any

from flowjoin._collector.peers import PeerSessions
from flowjoin._model.transport_session import TransportSession

class Datagrams:
    def __init__(self, peers: PeerSessions) -> None: ...
    def receive(
        self, receiving: socket.socket, budget: int
    ) -> tuple[int, list[bytes | memoryview], list[TransportSession], list[Any], OSError | None]: ...
