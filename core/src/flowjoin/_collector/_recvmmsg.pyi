import socket

from flowjoin._collector.datagrams import Received
from flowjoin._collector.peers import PeerSessions

class Datagrams:
    def __init__(self, peers: PeerSessions) -> None: ...
    def receive(self, receiving: socket.socket, budget: int, octets: int) -> Received: ...
