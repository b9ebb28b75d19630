"""flowjoin-conntrack keeps the contracts of sources, over a table that the test writes, and of look-ups."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
from conntrack_entries import connection
from policy_server import PolicyServer
from trio.abc import Clock

from flowjoin.api import Duration, FlowBatch, LookupType, PluginContext, PolicyRule, Secret, SourceType
from flowjoin.testing import LookupConformance, LookupExample, SourceConformance, SourceExample
from flowjoin_conntrack import ConntrackConfig, policy_rules
from flowjoin_conntrack._dumper import Portion
from flowjoin_conntrack._entry import NO_TCP_STATE
from flowjoin_conntrack._open import open_source

FORBIDDEN = 65535  # a zone


class Table:
    """What the kernel would tell."""

    has_counters = True

    def __init__(self, zones: tuple[int, ...], is_away: list[bool]) -> None:
        self._zones = zones
        self._is_away = is_away

    async def dump(self) -> AsyncGenerator[Portion, None]:
        await trio.lowlevel.checkpoint()
        if FORBIDDEN in self._zones:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if self._is_away[0]:
            raise OSError(errno.ENOENT, "No such file or directory")
        yield Portion(connection(packets=3, octets=300).pack(), 1)
        other = connection("fd00::1", "fd00::2", protocol=17, packets=1, octets=80, tcp_state=NO_TCP_STATE)
        yield Portion(other.pack(), 1)

    async def max_connections(self) -> int:
        await trio.lowlevel.checkpoint()
        return 262144

    async def count(self) -> int:
        return 0


class TestSource(SourceConformance):
    @pytest.fixture
    def is_away(self) -> list[bool]:
        return [False]

    @pytest.fixture
    def source_type(self, is_away: list[bool]) -> SourceType:
        @asynccontextmanager
        async def open_it(config: ConntrackConfig, context: PluginContext) -> AsyncIterator[AsyncIterator[FlowBatch]]:
            async with open_source(config, context, Table(config.zones, is_away)) as batches:
                yield batches

        return SourceType("conntrack", ConntrackConfig, open_it, api_version=1)

    @pytest.fixture
    def clock(self, autojump_clock: Clock) -> Clock:
        return autojump_clock

    @pytest.fixture
    def config(self) -> ConntrackConfig:
        return ConntrackConfig(poll_interval=Duration(5.0), node="node-1")

    @pytest.fixture
    def example(self) -> SourceExample:
        return SourceExample(
            rows=[
                {"sourceIPv4Address": "10.10.0.2", "packetDeltaCount": 3, "octetTotalCount": 300, "flowEndReason": 2},
                {"sourceIPv6Address": "fd00::1", "protocolIdentifier": 17, "octetDeltaCount": 80, "tcpState": ""},
            ]
        )

    @pytest.fixture
    def source_down(self, is_away: list[bool]) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def down() -> Iterator[None]:
            is_away[0] = True
            try:
                yield
            finally:
                is_away[0] = False

        return down

    @pytest.fixture
    def unusable_config(self) -> ConntrackConfig:
        return ConntrackConfig(zones=(FORBIDDEN,))


class TestPolicyRules(LookupConformance):
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[PolicyServer]:
        made = PolicyServer(tmp_path)
        made.write({"rule": 7, "generation": 1, "policyName": "allow-web", "ruleName": "r", "ruleAction": "allow"})
        with made.running():
            yield made

    @pytest.fixture
    def lookup_type(self) -> LookupType:
        return policy_rules.flowjoin_lookup_types()[0]

    @pytest.fixture
    def config(self, server: PolicyServer, monkeypatch: pytest.MonkeyPatch) -> policy_rules.PolicyRulesConfig:
        monkeypatch.setenv("POLICY_TOKEN", "correct horse battery staple")
        return policy_rules.PolicyRulesConfig(url=server.url, token=Secret("env", "POLICY_TOKEN"))

    @pytest.fixture
    def examples(self) -> list[LookupExample]:
        rule = PolicyRule(policy_name="allow-web", policy_type=1, rule_name="r", rule_action=1)
        return [LookupExample(method="rule", arguments=asked, answer=rule) for asked in ((7,), (7, 1), (7, 0, 1.7e9))]

    @pytest.fixture
    def source_down(self, server: PolicyServer) -> Callable[[], AbstractContextManager[None]]:
        return lambda: server.mode("503")
