"""Two Nodes with a Pod or two each, in network namespaces: real packets, real connection tracking, nft beside it.

```
 client ─ pod1 ┐                                   ┌ pod1 ─ server
               │ node 1 ──────── cable ─────── node 2 │
neighbour ─ pod2 ┘   └─ mgmt ─── outside ─── mgmt ─┘
```

The Nodes forward between their Pods and over the cable, as Antrea's Nodes do: connections of Pods are tracked in
Antrea's zones, marked, and labelled with the numbers of rules; what goes to port 9999 is denied, and logged.
``outside`` is where the aggregator is, and a host that is no Pod. In each Node's forwarding path nft counts packets
and octets of every 5-tuple.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["CLUSTER", "DENIED_PORT", "POD_NETWORKS", "Counted", "Flow", "TwoNodes", "addresses_of"]

DENIED_PORT: Final = 9999
POD_NETWORKS: Final = ("10.66.0.0/16", "fd66::/16")
_NUMBERS: Final = {"tcp": 6, "udp": 17, "icmp": 1, "ipv6-icmp": 58}
_HOSTS: Final = ("node1", "node2", "client", "neighbour", "server", "outside")
# one end and the other: namespace, device, number of the network, number of the host
_CABLES: Final = (
    ("node1", "pod1", "client", "eth0", "66", 1),
    ("node1", "pod2", "neighbour", "eth0", "66", 3),
    ("node2", "pod1", "server", "eth0", "66", 2),
    ("node1", "cable", "node2", "cable", "67", 0),
    ("node1", "mgmt", "outside", "node1", "68", 1),
    ("node2", "mgmt", "outside", "node2", "68", 2),
)
_SYSCTLS: Final = (
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.netfilter.nf_conntrack_acct=1",
    "net.netfilter.nf_conntrack_timestamp=1",
    # what is over is forgotten before a slow poll comes by
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait=1",
)

CLUSTER: Final = """
nodes:
  - {name: node-1, addresses: [10.68.1.1, "fd68:1::1"]}
  - {name: node-2, addresses: [10.68.2.1, "fd68:2::1"]}
pods:
  - {namespace: shop, name: client, node: node-1, addresses: [10.66.1.2, "fd66:1::2"]}
  - {namespace: shop, name: neighbour, node: node-1, addresses: [10.66.3.2, "fd66:3::2"]}
  - {namespace: shop, name: server, node: node-2, addresses: [10.66.2.2, "fd66:2::2"]}
services:
  - {namespace: shop, name: web, clusterAddresses: [10.96.0.10, "fd96::10"],
     ports: [{name: http, port: 80, protocol: tcp}, {name: dns, port: 53, protocol: udp}]}
egresses: [{name: shop-out, address: 10.68.1.1, node: node-1, namespaces: [shop]}]
policies:
  - {rule: 1, policyName: let-in, policyNamespace: shop, policyType: kubernetes, ruleAction: allow}
  - {rule: 3, policyName: not-out, policyNamespace: shop, policyType: antrea, ruleName: refuse, ruleAction: reject}
  - {rule: 4, policyName: not-out, policyNamespace: shop, policyType: antrea, ruleName: drop, ruleAction: drop}
  - {rule: 2, policyName: let-out, policyNamespace: shop, policyType: antrea, ruleName: out, ruleAction: allow}
"""

_RULES: Final = """
table inet t {
  set tcp_udp4 {
    type ipv4_addr . inet_service . ipv4_addr . inet_service . inet_proto; flags dynamic; size 65535; counter;
  }
  set tcp_udp6 {
    type ipv6_addr . inet_service . ipv6_addr . inet_service . inet_proto; flags dynamic; size 65535; counter;
  }
  set denied4 {
    type ipv4_addr . inet_service . ipv4_addr . inet_service . inet_proto; flags dynamic; size 1024; counter;
  }
  set denied6 {
    type ipv6_addr . inet_service . ipv6_addr . inet_service . inet_proto; flags dynamic; size 1024; counter;
  }
  set echo4 { type ipv4_addr . ipv4_addr; flags dynamic; size 1024; counter; }
  set echo6 { type ipv6_addr . ipv6_addr; flags dynamic; size 1024; counter; }
  chain zones { type filter hook prerouting priority -300;
    ip saddr 10.66.0.0/16 ct zone set 65520
    ip daddr 10.66.0.0/16 ct zone set 65520
    ip6 saddr fd66::/16 ct zone set 65510
    ip6 daddr fd66::/16 ct zone set 65510
  }
  chain services { type nat hook prerouting priority -100;
    ip daddr 10.96.0.10 tcp dport 80 dnat ip to 10.66.2.2:8080
    ip daddr 10.96.0.10 udp dport 53 dnat ip to 10.66.2.2:5353
    ip6 daddr fd96::10 tcp dport 80 dnat ip6 to [fd66:2::2]:8080
    ip6 daddr fd96::10 udp dport 53 dnat ip6 to [fd66:2::2]:5353
  }
  chain denied {
    meta nfproto ipv4 update @denied4 { ip saddr . th sport . ip daddr . th dport . meta l4proto }
    meta nfproto ipv6 update @denied6 { ip6 saddr . th sport . ip6 daddr . th dport . meta l4proto }
    meta l4proto tcp log group 5 prefix "refused" reject with tcp reset
    log group 5 prefix "dropped" drop
  }
  chain through { type filter hook forward priority 0;
    meta l4proto { tcp, udp } th dport 9999 jump denied
    ct state new ct mark set 0x3
    ct state new ct status dnat ct mark set 0x13
    ct state new LABEL
    meta nfproto ipv4 meta l4proto { tcp, udp } \\
      update @tcp_udp4 { ip saddr . th sport . ip daddr . th dport . meta l4proto }
    meta nfproto ipv6 meta l4proto { tcp, udp } \\
      update @tcp_udp6 { ip6 saddr . th sport . ip6 daddr . th dport . meta l4proto }
    icmp type { echo-request, echo-reply } update @echo4 { ip saddr . ip daddr }
    icmpv6 type { echo-request, echo-reply } update @echo6 { ip6 saddr . ip6 daddr }
  }
}
"""
# Antrea's connection label: the ingress rule's number from bit 0, the egress rule's from bit 32.
_LABELS: Final = {"node1": "ct label set 33", "node2": "ct label set 0"}


class Flow(NamedTuple):
    """A 5-tuple after destination NAT; ports of ICMP are 0."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    protocol: int

    @property
    def reply(self) -> Flow:
        """The other direction."""
        return Flow(self.destination, self.destination_port, self.source, self.source_port, self.protocol)


class Counted(NamedTuple):
    """What crossed a wire, in both directions."""

    packets: int
    octets: int
    reverse_packets: int
    reverse_octets: int


class TwoNodes:
    """The namespaces; they have names of this process's own."""

    def __init__(self, ip: str, nft: str) -> None:
        self._ip, self._nft = ip, nft

    def make(self) -> None:
        """Make all.

        Raises:
            subprocess.CalledProcessError: this kernel, or this user, cannot.
        """
        for host in _HOSTS:
            self._run("netns", "add", self._name(host))
            self._run("-n", self._name(host), "link", "set", "lo", "up")
        for host, device, other, other_device, kind, number in _CABLES:
            self._run(
                *("link", "add", device, "netns", self._name(host), "type", "veth"),
                *("peer", "name", other_device, "netns", self._name(other)),
            )
            for end, (where, name) in enumerate(((host, device), (other, other_device)), start=1):
                for address in addresses_of(kind, number, end):
                    quick = ("nodad",) if ":" in address else ()
                    length = "/64" if ":" in address else "/24"
                    self._run("-n", self._name(where), "addr", "add", f"{address}{length}", "dev", name, *quick)
                self._run("-n", self._name(where), "link", "set", name, "up")
        for host, number in (("client", 1), ("neighbour", 3), ("server", 2)):
            for gateway in addresses_of("66", number, 1):
                self._route(host, "default", gateway)
        for host, far, end in (("node1", (2,), 2), ("node2", (1, 3), 1)):
            for network in far:
                for prefix, gateway in zip(_networks(network), addresses_of("67", 0, end), strict=True):
                    self._route(host, prefix, gateway)
        for gateway in addresses_of("68", 1, 1):
            self._route("outside", POD_NETWORKS[1] if ":" in gateway else POD_NETWORKS[0], gateway)
        for node, label in _LABELS.items():
            rules = _RULES.replace("LABEL", label)
            subprocess.run(
                self.inside(node, self._nft, "-f", "-"), input=rules, check=True, capture_output=True, text=True
            )
            for setting in _SYSCTLS:
                name, _, value = setting.partition("=")
                path = "/proc/sys/" + name.replace(".", "/")
                subprocess.run(self.inside(node, "tee", path), input=value, check=True, capture_output=True, text=True)

    def drop(self) -> None:
        """Take all away."""
        for host in _HOSTS:
            subprocess.run([self._ip, "netns", "del", self._name(host)], capture_output=True, check=False)

    def inside(self, host: str, *command: str) -> list[str]:
        """The command, there."""
        return [self._ip, "netns", "exec", self._name(host), *command]

    def counted(self, node: str) -> dict[Flow, Counted]:
        """What crossed a Node, by the direction that began."""
        one_way: dict[Flow, tuple[int, int]] = {}
        for flow, packets, octets in self._elements(node):
            one_way[flow] = (packets, octets)
        both = {}
        for flow, there in one_way.items():
            if flow.reply in both:
                continue
            # the servers' ports are low, the clients' are the system's choice; echoes are asked for by the client
            is_first = flow.source_port > flow.destination_port or flow.source in addresses_of("66", 1, 2)
            if is_first:
                both[flow] = Counted(*there, *one_way.get(flow.reply, (0, 0)))
        return both

    def _elements(self, node: str) -> Iterator[tuple[Flow, int, int]]:
        for name in ("tcp_udp4", "tcp_udp6", "denied4", "denied6", "echo4", "echo6"):
            command = self.inside(node, self._nft, "-j", "list", "set", "inet", "t", name)
            listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            (found,) = [item["set"] for item in listed["nftables"] if "set" in item]
            for element in found.get("elem", ()):
                counter, key = element["elem"]["counter"], element["elem"]["val"]["concat"]
                if name.startswith("echo"):
                    flow = Flow(key[0], 0, key[1], 0, 58 if name == "echo6" else 1)
                else:
                    flow = Flow(*key[:4], _NUMBERS[key[4]])
                yield flow, counter["packets"], counter["bytes"]

    def _route(self, host: str, prefix: str, gateway: str) -> None:
        family = "-6" if ":" in gateway else "-4"
        self._run("-n", self._name(host), family, "route", "add", prefix, "via", gateway)

    def _name(self, host: str) -> str:
        return f"fj{os.getpid()}-{host}"

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._ip, *arguments], check=True, capture_output=True, text=True)


def addresses_of(kind: str, number: int, end: int) -> tuple[str, str]:
    """Both addresses of one end of a cable."""
    return f"10.{kind}.{number}.{end}", f"fd{kind}:{number}::{end}" if number else f"fd{kind}::{end}"


def _networks(number: int) -> tuple[str, str]:
    return f"10.66.{number}.0/24", f"fd66:{number}::/64"


def flow_of(row: Mapping[str, object]) -> Flow:
    """The 5-tuple of a row of JSON."""
    source, destination = (
        str(row.get(f"{end}IPv4Address") or row[f"{end}IPv6Address"]) for end in ("source", "destination")
    )
    return Flow(
        str(ipaddress.ip_address(source)),
        int(str(row["sourceTransportPort"])),
        str(ipaddress.ip_address(destination)),
        int(str(row["destinationTransportPort"])),
        int(str(row["protocolIdentifier"])),
    )
