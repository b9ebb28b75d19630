from __future__ import annotations

import re

import pytest

from flowjoin.api import ConfigError, Duration
from flowjoin_conntrack import ConntrackConfig, flowjoin_source_types


def test_the_type_is_called_conntrack() -> None:
    (made,) = flowjoin_source_types()
    assert (made.name, made.config) == ("conntrack", ConntrackConfig)


def test_no_timeout_is_shorter_than_a_poll() -> None:
    config = ConntrackConfig(poll_interval=Duration(30.0))
    assert (config.active, config.idle, config.stale) == (30.0, 30.0, 300.0)


def test_a_stale_connection_is_kept_for_twice_the_longest_timeout() -> None:
    assert ConntrackConfig(idle_timeout=Duration(400.0)).stale == 800.0


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"gateway_addresses": ("10.10.0",)}, 'gatewayAddresses[0]: "10.10.0" is no address; write one such'),
        (
            {"service_networks": ("10.10.0.1/8",)},
            'serviceCIDRs[0]: "10.10.0.1/8" is no network; write one such as 10.0.0.0/8',
        ),
        ({"pod_networks": ("x",)}, 'podCIDRs[0]: "x" is no network; write one such as 10.10.0.0/24'),
    ],
)
def test_what_is_no_address_or_network_is_refused(keys: dict[str, tuple[str, ...]], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        ConntrackConfig(**keys)  # type: ignore[arg-type]


def test_a_gateways_addresses_are_compared_in_canonical_text() -> None:
    config = ConntrackConfig(gateway_addresses=("10.10.0.1", "FD00:0::1"))
    assert config.gateways == {"10.10.0.1", "fd00::1"}


def test_a_name_that_no_interface_can_have_is_refused_and_not_cut() -> None:
    assert ConntrackConfig(gateway_interface="abcdefghijklmno").gateway_interface == "abcdefghijklmno"
    with pytest.raises(ConfigError, match='gatewayInterface: "abcdefghijklmnop": no interface\'s name is longer'):
        ConntrackConfig(gateway_interface="abcdefghijklmnop")


def test_events_make_polls_rarer_unless_it_is_said_how_often() -> None:
    assert ConntrackConfig().poll == 5.0
    assert ConntrackConfig(events=True).poll == 60.0
    assert ConntrackConfig(events=True, poll_interval=Duration(2.0)).poll == 2.0


def test_events_come_by_netlink_alone() -> None:
    with pytest.raises(ConfigError, match='events: needs "dumper: netlink"'):
        ConntrackConfig(events=True, dumper="proc")


@pytest.mark.parametrize("zones", [(), (0, 65520)])
def test_what_comes_from_outside_is_found_for_other_zones_than_the_default(zones: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match='fromExternal: needs "zones"'):
        ConntrackConfig(from_external=True, zones=zones)
    assert ConntrackConfig(from_external=True, zones=(65520,)).from_external
