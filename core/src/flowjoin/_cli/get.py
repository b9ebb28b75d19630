"""``flowjoin get``: what a running flowjoin knows, with the columns of Antrea's antctl, and what it exports."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from flowjoin._cli.api_client import (
    NoAnswer,
    Server,
    add_server_arguments,
    ask,
    read_array,
    read_events,
    refusal,
    server_of,
)
from flowjoin._cli.commands import EXIT_FAILED
from flowjoin._cli.output import Cell, add_output_argument, write_rows
from flowjoin._cli.printable import printable
from flowjoin._cli.top_view import parse_metrics

__all__ = ["add_arguments", "run"]

_LAG: Final = "flowjoin_lane_lag_seconds"
_NIL: Final = "<nil>"  # what antctl prints for a key that is absent
# column: keys, the first that is there counts
_FLOW_COLUMNS: Final = {
    "SRC_IP": ("sourceIPv4Address", "sourceIPv6Address"),
    "DST_IP": ("destinationIPv4Address", "destinationIPv6Address"),
    "SPORT": ("sourceTransportPort",),
    "DPORT": ("destinationTransportPort",),
    "PROTO": ("protocolIdentifier",),
    "SRC_POD": ("sourcePodName",),
    "DST_POD": ("destinationPodName",),
    "SRC_NS": ("sourcePodNamespace",),
    "DST_NS": ("destinationPodNamespace",),
    "SERVICE": ("destinationServicePortName",),
}
_COUNTER_COLUMNS: Final = {
    "RECORDS-EXPORTED": "numRecordsExported",
    "RECORDS-RECEIVED": "numRecordsReceived",
    "RECORDS-DROPPED": "numRecordsDropped",
    "FLOWS": "numFlows",
    "EXPORTERS-CONNECTED": "numConnToCollector",
}
_SINK_COLUMNS: Final = {
    "CLICKHOUSE-EXPORTER": "withClickHouseExporter",
    "S3-EXPORTER": "withS3Exporter",
    "LOG-EXPORTER": "withLogExporter",
    "IPFIX-EXPORTER": "withIPFIXExporter",
}
# column: member in JSON, figure of the exporter's lane
_EXPORTER_COLUMNS: Final = {
    "DELIVERED": ("delivered", "flowjoin_lane_delivered_rows_total"),
    "RETRIED": ("retried", "flowjoin_lane_retried_rows_total"),
    "HELD": ("held", "flowjoin_lane_held_rows"),
    "SPOOLED": ("spooled", "flowjoin_lane_spooled_rows"),
    "DEAD-LETTERED": ("deadLettered", "flowjoin_lane_dead_lettered_rows_total"),
    "DROPPED": ("dropped", "flowjoin_lane_dropped_rows_total"),
    "LAG-SECONDS": ("lagSeconds", _LAG),
}
_PARAMETERS: Final = {
    "srcip": ("ADDRESS", "of this source address"),
    "dstip": ("ADDRESS", "of this destination address"),
    "proto": ("NUMBER", "of this protocol, such as 6 for TCP"),
    "srcport": ("PORT", "of this source port"),
    "dstport": ("PORT", "of this destination port"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    what = parser.add_subparsers(dest="what", metavar="flowrecords|flowstream|recordmetrics", required=True)
    records = what.add_parser("flowrecords", help="the flows that are held now", description="The flows held now.")
    stream = what.add_parser(
        "flowstream",
        help="flows as they are exported, a JSON object a line",
        description="Flows as they are exported, a JSON object a line, until interrupted.",
    )
    for name, (metavar, help_text) in _PARAMETERS.items():
        kind = _address if metavar == "ADDRESS" else str
        for subparser in (records, stream):
            subparser.add_argument(f"--{name}", type=kind, metavar=metavar, default="", help=f"only flows {help_text}")
    counters = what.add_parser(
        "recordmetrics", help="what was counted", description="Antrea's counters, and those of each exporter."
    )
    counters.add_argument("--exporters", action="store_true", help="only those of each exporter, a row for each")
    for subparser in (records, stream, counters):
        add_server_arguments(subparser)
    for subparser in (records, counters):
        add_output_argument(subparser)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and print.

    Raises:
        CommandError: nobody answers, or the question cannot be understood.
        ConfigError: the configuration that says whom to ask cannot be used.
    """
    server = server_of(arguments)
    if arguments.what == "recordmetrics":
        if not arguments.exporters:
            _print_counters(server, arguments)
        if arguments.exporters or arguments.output == "table":
            _print_exporters(server, arguments)
    elif arguments.what == "flowstream":
        _print_stream(server, arguments)
    else:
        _print_flows(server, arguments)
    return 0


def _print_stream(server: Server, arguments: argparse.Namespace) -> None:
    given = {name: text for name in _PARAMETERS if (text := getattr(arguments, name))}
    while True:  # the server ends each stream after a quarter of an hour
        with ask(server, "/flowstream", given, is_stream=True) as answer:
            if answer.status != 200:
                raise refusal(answer)
            for event, data in read_events(answer.pieces()):
                if event == "dropped":
                    print(f"flowjoin: this reader is too slow, and lost {_rows_of(data)} flows", file=sys.stderr)
                else:
                    print(printable(data), flush=True)


def _rows_of(data: str) -> object:
    try:
        return json.loads(data)["rows"]
    except (ValueError, KeyError, TypeError):
        return "some"


def _print_flows(server: Server, arguments: argparse.Namespace) -> None:
    given = {name: text for name in _PARAMETERS if (text := getattr(arguments, name))}
    with ask(server, "/flowrecords", given) as answer:
        if answer.status != 200:
            raise refusal(answer)
        records = read_array(answer.pieces())
        if arguments.output == "json":
            _write_array(records)
            return
        absent = _NIL if arguments.output == "table" else ""
        rows = [{column: _first(record, keys, absent) for column, keys in _FLOW_COLUMNS.items()} for record in records]
    write_rows(tuple(_FLOW_COLUMNS), rows, arguments.output, empty="no such flow is held")


def _write_array(records: Any) -> None:
    """One array, an object a line, each written when it comes: there may be a million.

    In ASCII, because names from the network must not steer a terminal.
    """
    opening = "["
    for record in records:
        sys.stdout.write(f"{opening}{json.dumps(record)}")
        opening = ",\n "
    sys.stdout.write("[]\n" if opening == "[" else "]\n")


def _print_counters(server: Server, arguments: argparse.Namespace) -> None:
    with ask(server, "/recordmetrics") as answer:
        if answer.status != 200:
            raise refusal(answer)
        try:
            counters: Mapping[str, Any] = json.loads(answer.body())
        except ValueError as exc:
            raise NoAnswer("what answers is no flowjoin: it sent no JSON", exit_code=EXIT_FAILED) from exc
    row: dict[str, Cell] = {column: counters.get(key, 0) for column, key in _COUNTER_COLUMNS.items()}
    if answer.compatibility == "antrea-2.3":
        del row["RECORDS-DROPPED"]  # which that release does not count
    row |= {column: bool(counters.get(key, False)) for column, key in _SINK_COLUMNS.items()}
    if arguments.output == "json":
        print(json.dumps(counters))
    else:
        write_rows(tuple(row), [row], arguments.output)


def _print_exporters(server: Server, arguments: argparse.Namespace) -> None:
    with ask(server, "/metrics") as answer:
        if answer.status != 200:
            raise refusal(answer)
        try:
            figures = parse_metrics(answer.body().decode(), 0.0)
        except ValueError as exc:
            raise NoAnswer("what answers is no flowjoin: it sent no metrics", exit_code=EXIT_FAILED) from exc
    rows: list[dict[str, Cell]] = []
    for labels in figures.of(_LAG):
        values = {column: figures.of(metric).get(labels, 0.0) for column, (_, metric) in _EXPORTER_COLUMNS.items()}
        counts: dict[str, Cell] = {column: int(value) for column, value in values.items()}
        rows.append({"EXPORTER": dict(labels)["name"], **counts, "LAG-SECONDS": values["LAG-SECONDS"]})
    if arguments.output == "json":
        members = {"EXPORTER": "exporter", **{column: member for column, (member, _) in _EXPORTER_COLUMNS.items()}}
        print(json.dumps([{members[column]: cell for column, cell in row.items()} for row in rows]))
    elif rows or arguments.exporters:
        if not arguments.exporters:
            print()
        write_rows(("EXPORTER", *_EXPORTER_COLUMNS), rows, arguments.output, empty="there is no exporter")


def _first(record: Mapping[str, Any], keys: tuple[str, ...], absent: str) -> Cell:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str | int | float):
            return value
    return absent


def _address(text: str) -> str:
    """An address in any spelling; of what is none there are no flows, and nobody would be told why."""
    try:
        if text:  # else it is as good as not given
            ipaddress.ip_address(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"{text!r} is no address") from exc
    return text
