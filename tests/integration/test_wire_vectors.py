"""Messages of Antrea's agents and of go-ipfix's tests, byte for byte, and what they mean."""

from __future__ import annotations

import pytest
from wire_builders import TCP, UDP, kinds, records, template

from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import (
    Decoder,
    DecoderLimits,
    Encoder,
    MalformedTemplate,
    MessageFramer,
    RecordEncoder,
    TemplateReceived,
    default_registry,
    encode_message,
    encode_template_set,
    json_value,
)

T4 = bytes.fromhex("000a00285f9a6b7f0000000000000001000200180100000300080004000c00048065ffff0000dcba")
T6 = bytes.fromhex("000a0020601b460600000000000000010002001001000002001b0010001c0010")
D4 = bytes.fromhex("000a00215f9a6c12000000000000000101000011010203040506070804706f6431")
D6 = bytes.fromhex(
    "000a0034601b4bfc000000010000000101000024200100003238dfe1006300000000fefb200100003238dfe1006300000000fefb"
)
WRONG_VERSION = bytes.fromhex("000900285f28d3ec0000000000000001000200180100000300080004000c00048069ffff0000da15")
CUT_IN_A_FIELD = bytes.fromhex("000a00285f28d3ec0000000000000001000200180100000300080004000c00048069ffff0000")
CUT_IN_THE_TEMPLATES_HEADER = bytes.fromhex("000a00285f9a6b7f000000000000000100020018010000")
CUT_IN_THE_SETS_HEADER = bytes.fromhex("000a00215f28d49f00000000000000010100")
AGENT_IPV4_39 = bytes.fromhex(
    "000a012000000000000000002fc239a2000201100100002700960004009700040088000100070002000b0002000400010056000800550008"
    "000200080001000800080004000c000480560008000072798055000800007279800200080000727980010008000072798065ffff0000dcba"
    "8064ffff0000dcba8068ffff0000dcba8067ffff0000dcba8066ffff0000dcba8069ffff0000dcba806c00020000dcba806dffff0000dcba"
    "806effff0000dcba806fffff0000dcba807300010000dcba808dffff0000dcba808b00010000dcba8070ffff0000dcba8071ffff0000dcba"
    "807600010000dcba808effff0000dcba808c00010000dcba8088ffff0000dcba808900010000dcba8099ffff0000dcba809affff0000dcba"
    "806a00040000dcba"
)
AGENT_IPV6_39 = bytes.fromhex(
    "000a012000000000000000002fc239a2000201100101002700960004009700040088000100070002000b0002000400010056000800550008"
    "0002000800010008001b0010001c001080560008000072798055000800007279800200080000727980010008000072798065ffff0000dcba"
    "8064ffff0000dcba8068ffff0000dcba8067ffff0000dcba8066ffff0000dcba8069ffff0000dcba806c00020000dcba806dffff0000dcba"
    "806effff0000dcba806fffff0000dcba807300010000dcba808dffff0000dcba808b00010000dcba8070ffff0000dcba8071ffff0000dcba"
    "807600010000dcba808effff0000dcba808c00010000dcba8088ffff0000dcba808900010000dcba8099ffff0000dcba809affff0000dcba"
    "806b00100000dcba"
)
AGENT_IPV4_42 = bytes.fromhex(
    "000a013800000000000000002fc239a2000201280100002a00960004009700040088000100070002000b0002000400010056000800550008"
    "000200080001000800080004000c000480560008000072798055000800007279800200080000727980010008000072798065ffff0000dcba"
    "8064ffff0000dcba8068ffff0000dcba8067ffff0000dcba8066ffff0000dcba8069ffff0000dcba806c00020000dcba806dffff0000dcba"
    "806effff0000dcba806fffff0000dcba807300010000dcba808dffff0000dcba808b00010000dcba8070ffff0000dcba8071ffff0000dcba"
    "807600010000dcba808effff0000dcba808c00010000dcba8088ffff0000dcba808900010000dcba8099ffff0000dcba809affff0000dcba"
    "809bffff0000dcba809cffff0000dcba809dffff0000dcba806a00040000dcba"
)
AGENT_DATA = bytes.fromhex(
    "000a00c1619d6cdf000000012fc239a2010000b1619d6cd1619d6cdd03aed014510600000000000c8f940000000718524991000000000003"
    "aeb5000000021767faaa0a0a004f0a0a00500000000000073047000000000175db04000000000002141300000000006c15140a7065726674"
    "6573742d610b616e747265612d74657374166b38732d6e6f64652d636f6e74726f6c2d706c616e6500000014520870657266746573740000"
    "00000100000000000954494d455f574149540200000a0a010a"
)

AGENT_39_NAMES = (
    "flowStartSeconds flowEndSeconds flowEndReason sourceTransportPort destinationTransportPort protocolIdentifier"
    " packetTotalCount octetTotalCount packetDeltaCount octetDeltaCount sourceIPv4Address destinationIPv4Address"
    " reversePacketTotalCount reverseOctetTotalCount reversePacketDeltaCount reverseOctetDeltaCount"
    " sourcePodName sourcePodNamespace sourceNodeName destinationPodName destinationPodNamespace destinationNodeName"
    " destinationServicePort destinationServicePortName"
    " ingressNetworkPolicyName ingressNetworkPolicyNamespace ingressNetworkPolicyType ingressNetworkPolicyRuleName"
    " ingressNetworkPolicyRuleAction"
    " egressNetworkPolicyName egressNetworkPolicyNamespace egressNetworkPolicyType egressNetworkPolicyRuleName"
    " egressNetworkPolicyRuleAction"
    " tcpState flowType egressName egressIP destinationClusterIPv4"
)
AGENT_39 = AGENT_39_NAMES.split()
AGENT_42 = [*AGENT_39[:-1], "appProtocolName", "httpVals", "egressNodeName", "destinationClusterIPv4"]
AGENT_43 = [
    *AGENT_39[:-1],
    "egressNodeName",
    "proxySnatPort",
    "destinationClusterIPv4",
    "proxySnatIPv4",
    "destinationServiceIPv4",
]


def as_ipv6(names: list[str]) -> list[str]:
    return [name.replace("IPv4", "IPv6") for name in names]


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(default_registry())


@pytest.mark.parametrize("session", [UDP, TCP])
def test_a_template_and_its_data_are_read(decoder: Decoder, session: TransportSession) -> None:
    [_, received] = decoder.receive_message(T4, session, 0.0)
    names = template("sourceIPv4Address", "destinationIPv4Address", "sourcePodName")
    assert received == TemplateReceived(names, is_refresh=False)
    assert records(decoder.receive_message(D4, session, 0.0)) == [(b"\x01\x02\x03\x04", b"\x05\x06\x07\x08", "pod1")]


def test_ipv6_data_is_read(decoder: Decoder) -> None:
    decoder.receive_message(T6, UDP, 0.0)
    [values] = records(decoder.receive_message(D6, UDP, 0.0))
    element = default_registry().by_name("sourceIPv6Address")
    assert [json_value(element, value) for value in values] == ["2001:0:3238:dfe1:63::fefb"] * 2


def test_data_without_its_template_is_told(decoder: Decoder) -> None:
    assert kinds(decoder.receive_message(D4, TCP, 0.0)) == ["MessageReceived", "UndecodableSet"]


def test_a_wrong_version_leaves_the_templates_and_ends_a_stream(decoder: Decoder) -> None:
    decoder.receive_message(T4, UDP, 0.0)
    assert kinds(decoder.receive_message(WRONG_VERSION, UDP, 0.0)) == ["MalformedMessage"]
    assert len(records(decoder.receive_message(D4, UDP, 0.0))) == 1
    framer = MessageFramer()
    framer.receive_data(WRONG_VERSION)
    with pytest.raises(DecodeError):
        framer.next_message()


def test_a_template_cut_in_a_field_ends_the_earlier_one(decoder: Decoder) -> None:
    decoder.receive_message(T4, UDP, 0.0)
    events = decoder.receive_message(CUT_IN_A_FIELD, UDP, 0.0)
    assert kinds(events) == ["MessageReceived", "MalformedTemplate", "MalformedMessage"]
    assert isinstance(events[1], MalformedTemplate)
    assert events[1].error.reason is Reason.TEMPLATE_TRUNCATED
    assert records(decoder.receive_message(D4, UDP, 0.0)) == []


@pytest.mark.parametrize("cut", [CUT_IN_THE_TEMPLATES_HEADER, CUT_IN_THE_SETS_HEADER])
def test_a_message_cut_before_it_says_anything_leaves_the_templates(decoder: Decoder, cut: bytes) -> None:
    decoder.receive_message(T4, UDP, 0.0)
    assert kinds(decoder.receive_message(cut, UDP, 0.0)) == ["MessageReceived", "MalformedMessage"]
    assert len(records(decoder.receive_message(D4, UDP, 0.0))) == 1


def test_udp_sessions_and_templates_end_as_go_ipfix_ends_them() -> None:
    decoder = Decoder(default_registry(), limits=DecoderLimits(template_lifetime=1.0, idle_timeout=1.0))
    decoder.receive_message(T4, UDP, 0.0)
    decoder.receive_message(T4, UDP, 0.5)
    assert decoder.expire(1.0) == []
    assert decoder.statistics().templates == 1
    assert decoder.expire(1.5) == [UDP]


@pytest.mark.parametrize(
    ("octets", "names", "template_id"),
    [(AGENT_IPV4_39, AGENT_39, 256), (AGENT_IPV6_39, as_ipv6(AGENT_39), 257), (AGENT_IPV4_42, AGENT_42, 256)],
)
def test_an_agents_template_is_read_and_written_to_the_same_octets(
    decoder: Decoder, octets: bytes, names: list[str], template_id: int
) -> None:
    [_, received] = decoder.receive_message(octets, UDP, 0.0)
    expected = template(*names, template_id=template_id)
    assert received == TemplateReceived(expected, is_refresh=False)
    written = encode_message([encode_template_set([expected])], export_time=0, observation_domain_id=801_257_890)
    assert written == octets


def test_an_agents_record_is_read_and_written_to_the_same_octets(decoder: Decoder) -> None:
    decoder.receive_message(AGENT_IPV4_39, UDP, 0.0)
    [record] = records(decoder.receive_message(AGENT_DATA, UDP, 0.0))
    registry = default_registry()
    values = {name: json_value(registry.by_name(name), value) for name, value in zip(AGENT_39, record, strict=True)}
    assert {name: value for name, value in values.items() if value not in (0, "")} == {
        "flowStartSeconds": "2021-11-23T22:36:01Z",
        "flowEndSeconds": "2021-11-23T22:36:13Z",
        "flowEndReason": 3,
        "sourceTransportPort": 44_752,
        "destinationTransportPort": 5_201,
        "protocolIdentifier": 6,
        "packetTotalCount": 823_188,
        "octetTotalCount": 30_472_817_041,
        "packetDeltaCount": 241_333,
        "octetDeltaCount": 8_982_624_938,
        "sourceIPv4Address": "10.10.0.79",
        "destinationIPv4Address": "10.10.0.80",
        "reversePacketTotalCount": 471_111,
        "reverseOctetTotalCount": 24_500_996,
        "reversePacketDeltaCount": 136_211,
        "reverseOctetDeltaCount": 7_083_284,
        "sourcePodName": "perftest-a",
        "sourcePodNamespace": "antrea-test",
        "sourceNodeName": "k8s-node-control-plane",
        "destinationServicePort": 5_202,
        "destinationServicePortName": "perftest",
        "ingressNetworkPolicyRuleAction": 1,
        "tcpState": "TIME_WAIT",
        "flowType": 2,
        "destinationClusterIPv4": "10.10.1.10",
    }
    encoder = Encoder(observation_domain_id=801_257_890, sequence_number=1)
    assert encoder.encode_records(template(*AGENT_39), [record], 1_637_706_975) == [AGENT_DATA]


@pytest.mark.parametrize(
    ("names", "template_octets", "shortest_record"),
    [
        (AGENT_39, 288, 113),
        (as_ipv6(AGENT_39), 288, 149),
        (AGENT_42, 312, 116),
        (as_ipv6(AGENT_42), 312, 152),
        (AGENT_43, 320, 124),
        (as_ipv6(AGENT_43), 320, 184),
    ],
)
def test_agents_templates_and_shortest_records_have_their_sizes(
    names: list[str], template_octets: int, shortest_record: int
) -> None:
    agent = template(*names)
    [message] = Encoder().encode_templates([agent], 0)
    assert len(message) == template_octets
    defaults = [field.element.default for field in agent.fields]
    assert len(RecordEncoder(agent).encode(defaults)) == agent.minimum_record_length == shortest_record
