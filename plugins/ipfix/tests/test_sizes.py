"""Messages and Templates within their sizes, over TCP and over UDP's paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ipfix_exporting import V6, Start, facts_of, opened

from flowjoin.api import ConfigError, PermanentExportError
from flowjoin.testing import RecordingContext, numbered_flows, plain_flows, standard_flow
from flowjoin.wire import default_registry
from flowjoin_ipfix import IpfixConfig, flowjoin_exporter_types
from flowjoin_ipfix._datagram import DatagramConnection
from flowjoin_ipfix._exporter import open_ipfix

UNUSUAL = (
    "bgpSourceAsNumber",
    "bgpDestinationAsNumber",
    "vlanId",
    "ingressInterface",
    "egressInterface",
    "minimumTTL",
    "maximumTTL",
    "ipTTL",
    "fragmentFlags",
    "tcpWindowSize",
    "tcpUrgentPointer",
    "ipClassOfService",
    "sourceIPv4PrefixLength",
    "destinationIPv4PrefixLength",
    "bgpNextAdjacentAsNumber",
    "bgpPrevAdjacentAsNumber",
    "flowLabelIPv6",
    "igmpType",
    "mplsTopLabelType",
    "samplingInterval",
    "engineType",
    "engineId",
)


async def test_messages_never_exceed_the_configured_size(start: Start) -> None:
    for protocol in ("tcp", "udp"):
        collector = await start(protocol=protocol)
        config = IpfixConfig(address=collector.address, protocol=protocol, max_ipfix_msg_size=2000)  # type: ignore[arg-type]
        long = standard_flow(V6, sourcePodLabels="x" * 1000, destinationPodLabels="y" * 1000)
        async with opened(config) as exporter:
            await exporter.export(numbered_flows(50))
            with pytest.raises(PermanentExportError, match="over the limit of 1980") as refused:
                await exporter.export(long)
            await exporter.export(numbered_flows(1))
            await collector.count()
        assert refused.value.rows == (0,)
        [session] = collector.sessions
        assert 1400 < max(map(len, session.messages)) <= 2000
        assert session.rows == 51


@pytest.mark.parametrize(("host", "packed", "path"), [("127.0.0.1", 1472, 8972), ("::1", 1452, 8952)])
async def test_over_udp_messages_fit_ethernet_and_a_long_row_the_path(
    start: Start, host: str, packed: int, path: int
) -> None:
    """Loopback carries 65536 octets, and collectors have other buffers."""
    collector = await start(protocol="udp", host=host)
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address, protocol="udp"), context) as exporter:
        await exporter.export(numbered_flows(100))
        await exporter.export(standard_flow(sourcePodLabels="x" * 5000))
        with pytest.raises(PermanentExportError):
            await exporter.export(standard_flow(sourcePodLabels="x" * 9000))
        await collector.count()
    sizes = [len(message) for message in collector.sessions[0].messages]
    assert facts_of(context, "connected")["limit"] == path
    assert packed - 800 < max(sizes[:-1]) <= packed < 5000 < sizes[-1] <= path


async def test_a_size_over_the_paths_is_warned_of_once_and_makes_fragments(start: Start) -> None:
    collector = await start(protocol="udp")
    context = RecordingContext()
    config = IpfixConfig(address=collector.address, protocol="udp", max_ipfix_msg_size=20_000)
    async with opened(config, context) as exporter:
        for _ in range(2):
            await exporter.export(standard_flow(sourcePodLabels="x" * 15_000))
        await collector.count()
    assert facts_of(context, "messages_over_path") == {"limit": 20_000, "path": 8972}
    assert context.events.count("messages_over_path") == 1
    assert 15_000 < max(len(message) for message in collector.sessions[0].messages) <= 20_000


async def test_over_a_narrow_path_templates_go_in_fragments_and_rows_do_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatagramConnection, "limit", property(lambda _self: 552 - 28))
    collector = await start(protocol="udp")
    context = RecordingContext()
    async with opened(IpfixConfig(address=collector.address, protocol="udp"), context) as exporter:
        with pytest.raises(PermanentExportError):
            await exporter.export(standard_flow())
        empty = standard_flow(**{
            name: "" for name in standard_flow().schema.names if isinstance(standard_flow().column(name)[0], str)
            and "IP" not in name
        })  # fmt: skip
        await exporter.export(empty)
        await collector.count()
    assert facts_of(context, "template_over_path") == {"octets": 536, "path": 524}
    assert [len(message) for message in collector.sessions[0].messages] == [536, 536, 16 + 4 + 311 + 10]


async def test_a_size_no_template_fits_into_is_refused_at_start_and_by_check() -> None:
    (exporter_type,) = flowjoin_exporter_types()
    assert exporter_type.check is not None
    config = IpfixConfig(address="127.0.0.1", max_ipfix_msg_size=527)
    problem = "octets and fits into no Message of 527; write at least"
    with pytest.raises(ConfigError, match=f"has 536 {problem} 536, or 0") as refused:
        async with open_ipfix(config, RecordingContext()):
            pass
    assert refused.value.path == "maxIPFIXMsgSize"
    with pytest.raises(ConfigError, match=f"has 528 {problem} 528, or 0") as refused:
        exporter_type.check(config, default_registry())
    assert refused.value.path == "maxIPFIXMsgSize"
    for fitting in ({"max_ipfix_msg_size": 528}, {"record_format": "JSON"}, {"include_extra_elements": True}):
        exporter_type.check(replace(config, **fitting), default_registry())


async def test_a_template_that_grows_over_the_size_refuses_its_rows_and_nothing_else(start: Start) -> None:
    collector = await start()
    settings = {"include_k8s_names": False, "max_ipfix_msg_size": 512, "include_extra_elements": True}
    async with opened(IpfixConfig(address=collector.address, **settings)) as exporter:
        with pytest.raises(PermanentExportError, match=r"Template 256 does not fit into a Message of 512 octets"):
            await exporter.export(standard_flow().with_columns({name: [1] for name in UNUSUAL}))
        await exporter.export(plain_flows(2))
        assert await collector.count() == 2
    [session] = collector.sessions
    assert session.templates == [257, 258]
    assert max(map(len, session.messages)) <= 512


async def test_a_schema_too_many_refuses_its_rows(start: Start) -> None:
    collector = await start()
    async with opened(IpfixConfig(address=collector.address)) as exporter:
        await exporter.export(plain_flows(1))
        exporter._book._next_id = 65536
        with pytest.raises(PermanentExportError, match="65536"):
            await exporter.export(plain_flows(1).with_columns({"bgpNextAdjacentAsNumber": [1]}))
