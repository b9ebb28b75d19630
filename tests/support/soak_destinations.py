"""Where the soak's rows go: four destinations that can be taken away and given back, and that tell what they have."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

from clickhouse_process import ClickHouseProcess
from held_port import HeldPort
from kept_flowjoin import MARK
from s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, weed
from soak_books import identity

from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import NEED_DATA, DataSetReceived, Decoder, MessageFramer, default_registry, text_of

PATIENCE = 300.0  # seconds for whatever must happen in the end
_COLLECTOR = Path(__file__).with_name("killed_collector.py")
_MOVED = "moved-"
_MESSAGE_AND_SET = struct.Struct("!HHIIIH")  # RFC 7011 sections 3.1 and 3.3.2
_LEAST_DATA_SET_ID = 256

ADDRESSES = ("sourceIP", "destinationIP")
NUMBERS = (
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "flowStartSeconds",
    "flowEndSeconds",
    "octetTotalCount",
    "packetTotalCount",
    "octetDeltaCount",
    "reverseOctetTotalCount",
    MARK,
)
COLUMNS = (*ADDRESSES, *NUMBERS)


def row_of(values: Sequence[Any]) -> int:
    """The identity of a row, from the values of its COLUMNS, whose last is the mark."""
    return identity(int(values[-1]), values[:-1])


class Destination:
    """One of the four.

    Attributes:
        name: of the lane.
        promises_once: that a row is there only once.
        kills: how often it was taken away.
    """

    name: ClassVar[str]
    promises_once: ClassVar[bool] = True
    bears_kills: ClassVar[bool] = True  # of flowjoin, while it is away

    def __init__(self, directory: Path) -> None:
        self.directory = directory / self.name
        self.directory.mkdir()
        self.kills = 0

    def start(self) -> None:
        """Returns when it takes rows."""

    def take_away(self) -> None:
        """Without a word."""

    def stop(self) -> None:
        self.take_away()

    def config(self) -> str:
        """The exporter's entry."""
        raise NotImplementedError

    def rows(self) -> Iterator[int]:
        """Identities of all rows there."""
        raise NotImplementedError

    def rows_taken_away(self) -> Iterator[int]:
        """Identities of rows that it has besides, where the promise to be there once does not reach."""
        return iter(())

    def spoil(self) -> None:
        """One row is lost, or some together; where it is promised that there are none twice, one is there twice."""
        raise NotImplementedError


class Log(Destination):
    """A file, rotated as it grows; when it is taken away it is moved, and a directory takes its name.

    A row is there once while device and inode stay. A batch that was on its way when the file was moved may be in both.
    """

    name = "log"
    bears_kills = False  # a directory in the file's place is refused at start

    @property
    def _path(self) -> Path:
        return self.directory / "flows.csv"

    def start(self) -> None:
        if self._path.is_dir():
            self._path.rmdir()

    def take_away(self) -> None:
        self.kills += 1
        for number in itertools.count():
            with suppress(FileNotFoundError):  # in the middle of a rotation
                self._path.rename(self.directory / f"{_MOVED}{self.kills}-{number}.csv")
            with suppress(FileExistsError):  # made anew meanwhile
                self._path.mkdir()
                return

    def stop(self) -> None:
        """Nothing runs."""

    def config(self) -> str:
        return (
            f"{{type: log, name: log, path: '{self._path}', header: true, prettyPrint: false, maxSize: 4, "
            f"maxBackups: 0, elements: [{', '.join(NUMBERS)}]}}"
        )

    def rows(self) -> Iterator[int]:
        for path in self._own_files():
            yield from _rows_of_file(path)

    def rows_taken_away(self) -> Iterator[int]:
        for path in sorted(self.directory.glob(f"{_MOVED}*")):
            yield from _rows_of_file(path)

    def spoil(self) -> None:
        path = max(self._own_files(), key=lambda path: path.stat().st_size)
        octets = path.read_bytes()
        is_packed = path.suffix == ".gz"
        spoiled = _with_one_for_another(gzip.decompress(octets) if is_packed else octets)
        path.write_bytes(gzip.compress(spoiled) if is_packed else spoiled)

    def _own_files(self) -> list[Path]:
        return sorted(path for path in self.directory.iterdir() if not path.name.startswith(_MOVED))


class Ipfix(Destination):
    """A collector over TCP that writes down what it reads."""

    name = "ipfix"
    promises_once = False
    # What its system took and it did not read comes again from flowjoin's memory: both must not go at once.
    bears_kills = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._held = HeldPort()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(_COLLECTOR), str(self._held.number), str(self.directory), f"{self.kills:05d}"],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the collector did not start"

    def take_away(self) -> None:
        self.kills += 1
        self._end()

    def stop(self) -> None:
        self._end()
        self._held.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def unfinished(self) -> set[str]:
        """Connections that it has not read to the end."""
        assert self._process is not None
        folder = Path(f"/proc/{self._process.pid}/fd")
        names = set()
        for each in folder.iterdir():
            try:
                names.add(os.readlink(each))  # noqa: PTH115 - the name alone is wanted
            except FileNotFoundError:
                continue  # closed meanwhile
        return {name for name in names if name.endswith(".ipfix")}

    def config(self) -> str:
        return f"{{type: ipfix, name: ipfix, address: '127.0.0.1:{self._held.number}'}}"

    def rows(self) -> Iterator[int]:
        positions: dict[int, list[int]] = {}
        for serial, path in enumerate(sorted(self.directory.iterdir())):
            framer, decoder = MessageFramer(), Decoder(default_registry())
            session = TransportSession(protocol="tcp", serial=serial)
            positions.clear()
            with path.open("rb") as octets:
                while data := octets.read(1_000_000):
                    framer.receive_data(data)
                    while (message := framer.next_message()) is not NEED_DATA:
                        for event in decoder.receive_message(bytes(message), session, 0.0):
                            if isinstance(event, DataSetReceived):
                                yield from _rows_of_set(event, positions)

    def spoil(self) -> None:
        """The last Message with rows is gone: nothing that came later has them too."""
        path = max(self.directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        octets = path.read_bytes()
        at, last = 0, None
        while at < len(octets):
            _, length, _, _, _, set_id = _MESSAGE_AND_SET.unpack_from(octets, at)
            if set_id >= _LEAST_DATA_SET_ID:
                last = at, at + length
            at += length
        assert last is not None, f"{path} has no rows"
        path.write_bytes(octets[: last[0]] + octets[last[1] :])


class ClickHouse(Destination):
    """ClickHouse's engine behind its HTTP interface, in a process of its own."""

    name = "clickhouse"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._server = ClickHouseProcess(self.directory)

    def start(self) -> None:
        self._server.start()

    def take_away(self) -> None:
        self.kills += 1
        self._server.kill()

    def stop(self) -> None:
        self._server.close()

    def config(self) -> str:
        return (
            f"{{type: clickhouse, name: clickhouse, databaseURL: '{self._server.url}', createSchema: true, "
            "commitInterval: 1s}"
        )

    def rows(self) -> Iterator[int]:
        wanted = ", ".join(f"toUInt32({name})" if name.startswith("flow") else name for name in COLUMNS)
        slots = self._server.query("SELECT DISTINCT intDiv(toUInt32(flowEndSeconds), 10) FROM flows")
        for (slot,) in slots:  # not all in one answer
            chosen = f"SELECT {wanted} FROM flows WHERE intDiv(toUInt32(flowEndSeconds), 10) = {slot}"
            yield from map(row_of, self._server.query(chosen))

    def spoil(self) -> None:
        ((lost,),) = self._server.query(f"SELECT max({MARK}) FROM flows")
        self._server.command(f"ALTER TABLE flows DELETE WHERE {MARK} = {lost} SETTINGS mutations_sync = 1")
        self._server.command(
            f"INSERT INTO flows SETTINGS insert_deduplicate = 0 SELECT * FROM flows ORDER BY {MARK} LIMIT 1"
        )


class S3(Destination):
    """SeaweedFS."""

    name = "s3"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._server = weed(self.directory)
        self._server.patience = PATIENCE
        self._has_bucket = False

    def start(self) -> None:
        self._server.start()
        if not self._has_bucket:
            with closing(self._server.client()) as client:
                client.create_bucket(Bucket=BUCKET)
            self._has_bucket = True

    def take_away(self) -> None:
        self.kills += 1
        self._server.kill()

    def stop(self) -> None:
        self._server.close()

    def config(self) -> str:
        return (
            f"{{type: s3, name: s3, bucketName: {BUCKET}, endpointURL: '{self._server.url}', uploadInterval: 1s, "
            "header: true, accessKeyID: {env: SOAK_KEY}, secretAccessKey: {env: SOAK_SECRET}}"
        )

    def rows(self) -> Iterator[int]:
        with closing(self._server.client()) as client:
            for each in self._objects(client):
                octets = client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
                yield from _rows_of_csv(io.StringIO(gzip.decompress(octets).decode(), newline=""))

    def spoil(self) -> None:
        with closing(self._server.client()) as client:
            key = max(self._objects(client), key=lambda each: each["Size"])["Key"]
            octets = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            client.put_object(
                Bucket=BUCKET, Key=key, Body=gzip.compress(_with_one_for_another(gzip.decompress(octets)))
            )

    @staticmethod
    def _objects(client: Any) -> Iterator[Any]:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            yield from page.get("Contents", ())


ENVIRONMENT = {"SOAK_KEY": ACCESS_KEY, "SOAK_SECRET": SECRET_KEY}
DESTINATIONS: Sequence[type[Destination]] = (Log, Ipfix, ClickHouse, S3)


def _with_one_for_another(octets: bytes) -> bytes:
    """Of a CSV file with a header: the last row is gone, the one before it is there twice."""
    header, *lines = octets.splitlines(keepends=True)
    assert len(lines) > 1, "too few rows to spoil one"
    return b"".join([header, *lines[:-1], lines[-2]])


def _rows_of_file(path: Path) -> Iterator[int]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
        yield from _rows_of_csv(lines)


def _rows_of_csv(lines: Iterable[str]) -> Iterator[int]:
    positions: list[int] = []
    for fields in csv.reader(lines):
        if "sourceIP" in fields:  # a header
            positions = [fields.index(name) for name in COLUMNS]
        else:
            yield row_of([fields[position] for position in positions])


def _rows_of_set(event: DataSetReceived, positions: dict[int, list[int]]) -> Iterator[int]:
    fields = event.template.fields
    at = positions.get(event.template.template_id)
    if at is None:
        names = [field.element.name for field in fields]
        family = "IPv4Address" if "sourceIPv4Address" in names else "IPv6Address"
        wanted = [name.removesuffix("IP") + family for name in ADDRESSES] + list(NUMBERS)
        at = positions[event.template.template_id] = [names.index(name) for name in wanted]
    source, destination = (fields[position].element for position in at[:2])
    for values in event.records:
        told: list[Any] = [values[position] for position in at]
        told[0], told[1] = text_of(source, told[0]), text_of(destination, told[1])
        yield row_of(told)
