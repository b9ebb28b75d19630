"""A collector that writes down what it reads, at once, and knows nothing else: made to be killed.

``python -S killed_collector.py PORT FOLDER PREFIX``: each connection's octets go to a file of their own.
"""

import os
import select
import socket
import sys


def main(port: int, folder: str, prefix: str) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    streams: dict[int, tuple[socket.socket, int]] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                stream, (_, peer_port) = listener.accept()
                name = f"{folder}/{prefix}-{peer_port}.ipfix"
                streams[stream.fileno()] = stream, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                poll.register(stream, select.POLLIN)
                continue
            stream, file = streams[descriptor]
            try:
                octets = stream.recv(65_536)
            except ConnectionResetError:
                octets = b""
            if octets:
                os.write(file, octets)
            else:
                poll.unregister(descriptor)
                del streams[descriptor]
                os.close(file)
                stream.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
