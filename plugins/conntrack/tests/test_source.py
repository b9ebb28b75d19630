from __future__ import annotations

import dataclasses
import errno
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import pytest
import trio
from conntrack_entries import TIME_WAIT, connection
from written_table import CONFIG, Table, next_row

from flowjoin.api import ConfigError, Duration, PluginError, Pod, PodLookup
from flowjoin.testing import RecordingContext
from flowjoin_conntrack import _dumper, policy_rules
from flowjoin_conntrack._dumper import Portion
from flowjoin_conntrack._impairments import Impairments
from flowjoin_conntrack._netlink import NetlinkError
from flowjoin_conntrack._open import open_source, set_parameters


async def test_what_is_in_the_table_comes_as_batches(autojump_clock) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext()
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        began = trio.current_time()
        row = await next_row(batches)
        assert (row["packetDeltaCount"], row["flowEndReason"]) == (3, 2)
        assert trio.current_time() - began == pytest.approx(5, abs=0.2)
        table.connections = [connection(packets=9, tcp_state=TIME_WAIT)]
        row = await next_row(batches)
        assert (row["packetDeltaCount"], row["flowEndReason"], row["tcpState"]) == (6, 3, "TIME_WAIT")
    assert context.counters["polls"].value >= 2
    assert context.counters["entries"].value >= 2


async def test_a_poll_that_fails_is_counted_and_takes_nothing_away(autojump_clock) -> None:
    table = Table(connection(packets=3))
    context = RecordingContext()
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        table.error = OSError(4, "the table changed while it was read")
        row = await next_row(batches)
        assert row["flowEndReason"] == 2  # it has not vanished
        await trio.sleep(12)  # two more polls
        table.error = None
        table.connections = [connection(packets=4)]
        row = await next_row(batches)  # and no row of nothing before: nobody knew whether it was still
        assert (row["packetDeltaCount"], row["flowEndReason"]) == (1, 2)
    assert context.counters["failed_polls"].value >= 2
    assert {line.event for line in context.log.lines if line.level == "warning"} == {"poll_failed"}


async def test_who_may_not_read_the_table_is_told_what_is_missing() -> None:
    table = Table()
    table.error = PermissionError(1, "Operation not permitted")
    with pytest.raises(ConfigError, match="run with CAP_NET_ADMIN"):
        async with open_source(CONFIG, RecordingContext(), table):
            raise AssertionError("it opened")


async def test_who_may_not_read_proc_needs_root_and_no_capability() -> None:
    table = Table()
    table.error = PermissionError(13, "Permission denied", "/proc/net/nf_conntrack")
    with pytest.raises(ConfigError, match=r"cannot be read: Permission denied; run as root$"):
        async with open_source(dataclasses.replace(CONFIG, dumper="proc"), RecordingContext(), table):
            raise AssertionError("it opened")


async def test_what_goes_to_the_gateways_interface_is_left_out(autojump_clock, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: list[frozenset[str]] = [frozenset(), frozenset({"10.10.0.1"})]
    monkeypatch.setattr("flowjoin_conntrack._source.addresses_of", lambda _name: addresses.pop(0))
    table = Table(connection("10.10.0.1", "10.10.0.9"))
    context = RecordingContext()
    config = dataclasses.replace(CONFIG, gateway_interface="antrea-gw0")
    async with open_source(config, context, table) as batches, aclosing(batches):
        await next_row(batches)  # a gateway without an address is nobody's, and that is said
        assert context.events == ["gateway_without_address"]
        table.connections = [connection("10.10.0.9", "10.10.0.1"), connection("10.10.0.9", "10.10.0.8", packets=1)]
        addresses += [frozenset({"10.10.0.1"})] * 100
        seen: set[object] = set()
        with trio.fail_after(1000):
            while "10.10.0.8" not in seen:
                seen.update((await anext(batches)).column("destinationIPv4Address"))
    assert seen == {"10.10.0.9", "10.10.0.8"}


async def test_what_dashboards_of_antreas_agent_show_is_there_under_its_names(autojump_clock) -> None:
    table = Table(connection(packets=3), connection("10.10.0.4", connection_id=8))
    context = RecordingContext()
    async with open_source(CONFIG, context, table):
        figures = {context.others_names[name]: read() for name, read in context.gauges.items()}
        assert figures == {
            "antrea_agent_conntrack_total_connection_count": 2,
            "antrea_agent_conntrack_max_connection_count": 262144,
            "antrea_agent_conntrack_antrea_connection_count": 2,
            "antrea_agent_denied_connection_count": 0,
        }
        assert len(context.histograms["poll_duration_seconds"].figures) == 1
    assert context.others_names["poll_duration_seconds"] == "antrea_agent_conntrack_poll_cycle_duration_seconds"


@pytest.mark.parametrize("after", range(12))
async def test_it_ends_wherever_it_is_cancelled(autojump_clock, after: int) -> None:
    table = Table(connection(packets=3))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(after):
                    await trio.sleep(1)
                scope.cancel()

            nursery.start_soon(cancel)
            async with open_source(CONFIG, RecordingContext(), table) as batches, aclosing(batches):
                async for _ in batches:
                    table.connections = [connection(packets=3 + table.dumps)]
    assert scope.cancelled_caught


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
async def test_what_the_kernel_forbids_by_its_own_number_is_said_too(number: int) -> None:
    table = Table()
    table.error = NetlinkError(number, "Operation not permitted")
    with pytest.raises(ConfigError, match="run with CAP_NET_ADMIN"):
        async with open_source(CONFIG, RecordingContext(), table):
            raise AssertionError("it opened")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPROTONOSUPPORT, errno.ENOENT])
async def test_a_kernel_without_connection_tracking_is_named_and_may_get_it_later(number: int) -> None:
    table = Table(connection(packets=3))
    table.error = NetlinkError(number, "no")
    with pytest.raises(OSError, match="has no connection tracking to be read; load nf_conntrack_netlink"):
        async with open_source(CONFIG, RecordingContext(), table):
            raise AssertionError("it opened")
    table.error = None
    async with open_source(CONFIG, RecordingContext(), table):
        pass


async def test_what_does_not_work_shows_in_the_health_while_it_does_not(autojump_clock) -> None:
    table, context = Table(connection(packets=3)), RecordingContext()
    table.size = 100
    async with open_source(CONFIG, context, table) as batches, aclosing(batches):
        assert context.impairments == []
        table.error = OSError(5, "Input/output error")
        await trio.sleep(12)
        assert context.impairments == ["the connection tracking table cannot be read: [Errno 5] Input/output error"]
        table.error, table.held = None, 95
        await trio.sleep(6)
        assert context.impairments[1:] == [
            "",
            "the connection tracking table is nearly full (95 of 100): what is new is dropped",
        ]
        table.held = 94
        await trio.sleep(6)
        assert context.impairments[3:] == [""]
    assert context.counters["nearly_full_polls"].value == 1
    assert context.counters["failed_polls"].value == 2


async def test_problems_that_come_together_are_one_sentence(autojump_clock) -> None:
    context = RecordingContext()
    impairments = Impairments(context)
    for name, problem in (("a", "one"), ("b", "two"), ("b", "two"), ("a", ""), ("a", ""), ("b", "")):
        impairments.tell(name, problem)
    assert context.impairments == ["one", "one; two", "two", ""]


async def test_what_is_forgotten_before_a_row_told_of_it_is_counted(autojump_clock) -> None:
    table, context = Table(connection(packets=3)), RecordingContext()
    async with open_source(CONFIG, context, table):  # nobody takes batches
        table.connections = []
        await trio.sleep(290)
        assert context.counters["untold_connections"].value == 0
        await trio.sleep(20)
        assert (context.counters["untold_connections"].value, context.gauges["connections"]()) == (1, 0)


async def test_a_look_up_that_is_not_open_leaves_names_empty_and_the_source_open(autojump_clock) -> None:
    class Closed:
        def pod(self, address: str, at: float | None = None) -> Pod | None:
            raise PluginError("the look-up is not open", plugin="kubernetes")

    context = RecordingContext(lookups={PodLookup: Closed()})
    async with open_source(CONFIG, context, Table(connection(packets=3))) as batches, aclosing(batches):
        assert (await next_row(batches))["sourcePodName"] == ""
        await trio.sleep(6)
    assert context.counters["unanswered_lookups"].value >= 2


@pytest.mark.parametrize("can_be_written", [True, False])
def test_counters_and_times_are_switched_on_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_written: bool
) -> None:
    for name in ("nf_conntrack_acct", "nf_conntrack_timestamp"):
        if can_be_written:
            (tmp_path / name).write_text("0\n")
    monkeypatch.setattr(_dumper, "_DIRECTORY", tmp_path)
    missing = _dumper.unset_sysctls()
    if can_be_written:
        assert missing == []
        assert (tmp_path / "nf_conntrack_acct").read_text() == "1"
    else:
        assert missing == ["net.netfilter.nf_conntrack_acct", "net.netfilter.nf_conntrack_timestamp"]
        context = RecordingContext()
        set_parameters(context, Impairments(context))
        assert context.events == ["kernel_parameters_not_set"]
        assert context.counters["kernel_parameters_not_set"].value == 2
        assert "net.netfilter.nf_conntrack_acct and net" in context.impairments[0]


async def test_a_table_of_which_nothing_more_comes_is_a_poll_that_failed(autojump_clock) -> None:
    class Silent(Table):
        async def dump(self) -> AsyncGenerator[Portion, None]:
            async with aclosing(super().dump()) as portions:
                async for portion in portions:
                    yield portion
            if self.dumps > 1:
                await trio.sleep_forever()

    context = RecordingContext()
    async with open_source(CONFIG, context, Silent(connection(packets=3))) as batches, aclosing(batches):
        await trio.sleep(96)
        assert context.counters["failed_polls"].value == 1
        assert "nothing came of the table for 90 s" in context.impairments[0]


def test_opening_the_look_up_may_take_as_long_as_it_waits_for_an_answer() -> None:
    (made,) = policy_rules.flowjoin_lookup_types()
    assert made.patience(policy_rules.PolicyRulesConfig(url="http://127.0.0.1/", timeout=Duration(30.0))) == 60.0


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (None, [1, 6, 17, 58, 132]),
        ((), []),
        (("tcp",), [6]),
        (("udp", "sctp"), [17, 132]),
        (("icmp",), [1, 58]),
    ],
)
async def test_protocols_are_kept_by_name(
    names: tuple[Literal["tcp", "udp", "sctp", "icmp"], ...] | None, kept: list[int]
) -> None:
    table = Table(
        *(connection(protocol=protocol, packets=1) for protocol in (1, 6, 17, 132)),
        connection("fd00::2", "fd00::3", protocol=58, packets=1),
    )
    config = dataclasses.replace(CONFIG, protocols=names)
    async with open_source(config, RecordingContext(), table) as batches, aclosing(batches):
        batches.finish()
        found = [row["protocolIdentifier"] async for batch in batches for row in batch.to_dicts()]
    assert sorted(found) == kept
