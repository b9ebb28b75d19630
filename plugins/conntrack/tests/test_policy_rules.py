from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certificates
import pytest
import trio
import trustme
from policy_server import PolicyServer
from waiting import until

from flowjoin.api import ConfigError, Duration, Octets, Secret
from flowjoin.testing import RecordingContext
from flowjoin.wire import default_registry
from flowjoin_conntrack import policy_rules
from flowjoin_conntrack._http import target_of
from flowjoin_conntrack.policy_rules import PolicyRulesConfig, flowjoin_lookup_types

(TYPE,) = flowjoin_lookup_types()
RULE = {"rule": 7, "policyName": "allow-web", "policyType": "antrea", "generation": 1}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PolicyServer]:
    made = PolicyServer(tmp_path)
    made.write(RULE)
    with made.running():
        yield made


def config(server: PolicyServer, **changed: Any) -> PolicyRulesConfig:
    return PolicyRulesConfig(**{"url": server.url, "interval": Duration(1.0), "timeout": Duration(20.0), **changed})


async def test_a_rule_is_known_when_it_is_open(server: PolicyServer) -> None:
    context = RecordingContext()
    async with TYPE.open(config(server), context) as rules:
        assert rules.rule(7).policy_name == "allow-web"  # type: ignore[attr-defined]  # PolicyLookup
        assert rules.rule(8) is None  # type: ignore[attr-defined]  # as that
    assert context.impairments == [""]
    assert context.counters["unknown_policy_rules"].value == 1


async def test_what_changes_is_seen_and_what_does_not_is_not_sent_again(server: PolicyServer) -> None:
    context = RecordingContext()
    # Asked again for numbers that nobody has, and not by the clock: what is fresh stays so on a slow machine.
    async with TYPE.open(config(server, interval=Duration(1800.0)), context) as opened:
        rules: Any = opened
        assert rules.rule(999) is None
        await until(lambda: context.counters["policy_lists"].value >= 2)
        server.write({**RULE, "policyName": "new", "generation": 2})
        assert rules.rule(999) is None
        await until(lambda: rules.rule(7).policy_name == "new")
        assert rules.rule(7, at=0.0).policy_name == "allow-web"
        assert rules.rule(7, at=time.time()).policy_name == "new"
        assert rules.rule(7, at=time.time() + 7200) is None  # nobody knows that yet
    first, second = server.asked()[:2]
    assert "If-None-Match" not in first
    assert second["If-None-Match"]


async def test_a_number_that_nobody_has_makes_it_ask_soon(server: PolicyServer) -> None:
    context = RecordingContext()
    async with TYPE.open(config(server, interval=Duration(3600.0)), context) as opened:
        rules: Any = opened
        server.write(RULE, {"rule": 8, "policyName": "later"})
        assert rules.rule(8) is None
        await until(lambda: rules.rule(8) is not None)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("503", "answers 503"),
        ("401", "answers 401"),
        ("301", "answers 301"),
        ("304", "answers 304"),  # nobody asked for that
        ("cut", "broke off, or does not speak HTTP"),
        ("no-http", "broke off, or does not speak HTTP"),
        ("endless", "is longer than 1000 octets"),
        ("silent", "no answer within 0.5 s"),
    ],
)
async def test_what_is_no_answer_is_said_and_asked_for_again(server: PolicyServer, how: str, sentence: str) -> None:
    context = RecordingContext()
    timeout = Duration(0.5 if how == "silent" else 20.0)
    with server.mode(how):
        async with TYPE.open(config(server, timeout=timeout, max_size=Octets(1000)), context) as opened:
            rules: Any = opened
            assert rules.rule(7) is None
    assert context.counters["failed_policy_lists"].value >= 1
    assert sentence in context.impairments[0]
    assert context.log.lines[0].event == "policy_rules_not_read"
    context = RecordingContext()
    async with TYPE.open(config(server, max_size=Octets(1000)), context) as opened:
        rules = opened
        await until(lambda: rules.rule(7) is not None)


async def test_while_the_server_is_away_what_was_known_stays(server: PolicyServer) -> None:
    context = RecordingContext()
    async with TYPE.open(config(server), context) as opened:
        rules: Any = opened
        with server.mode("503"):
            await until(lambda: context.counters["failed_policy_lists"].value >= 1)
            assert rules.rule(7).policy_name == "allow-web"
        await until(lambda: context.impairments[-1] == "")


async def test_a_list_that_makes_no_sense_is_none(server: PolicyServer) -> None:
    server.write({"rule": "seven"})
    context = RecordingContext()
    async with TYPE.open(config(server), context) as opened:
        rules: Any = opened
        assert rules.rule(7) is None
    assert "policies[0] has no policyName" in context.impairments[0]


async def test_the_token_is_read_at_each_request_and_never_shown(server: PolicyServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    context = RecordingContext()
    async with TYPE.open(config(server, token=Secret("file", str(token))), context):
        token.write_text("second\n")
        await until(lambda: server.asked()[-1]["Authorization"] == "Bearer second")
        token.write_text("wr\u00f6ng\x01\n")
        await until(lambda: context.counters["failed_policy_lists"].value >= 1)
        token.unlink()
        await until(lambda: "cannot be read" in context.impairments[-1])
    assert server.asked()[0]["Authorization"] == "Bearer first"
    for line in context.log.lines:
        assert "wr\u00f6ng" not in repr(line)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return certificates.write(tmp_path, "ca", certificates.authority())[0]


def pem(directory: Path, name: str, pair: Any) -> Path:
    certificate, key = certificates.write(directory, name, pair)
    both = directory / f"{name}.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    return both


async def test_the_server_is_verified_and_may_verify_us(tmp_path: Path, authority: Path) -> None:
    server = PolicyServer(tmp_path, certificate=pem(tmp_path, "server", certificates.server()), client_ca=authority)
    server.write(RULE)
    ours, key = certificates.write(tmp_path, "ours", certificates.client())
    with server.running():
        context = RecordingContext()
        async with TYPE.open(config(server, ca=authority, certificate=ours, key=key), context) as opened:
            rules: Any = opened
            assert rules.rule(7).policy_name == "allow-web"
        for wrong in ({"certificate": ours, "key": key}, {"ca": authority}, {"ca": tmp_path / "none"}):
            context = RecordingContext()
            async with TYPE.open(config(server, **wrong), context) as opened:
                rules = opened
                assert rules.rule(7) is None
            assert "cannot be reached" in context.impairments[0] or "broke off" in context.impairments[0]


async def test_a_server_that_is_not_there_is_waited_for() -> None:
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        context = RecordingContext()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        async with TYPE.open(PolicyRulesConfig(url=url), context) as opened:
            rules: Any = opened
            assert rules.rule(7) is None
    assert context.impairments[0].endswith("cannot be reached: Connection refused")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"url": "rules.json"}, 'url: "rules.json" is no URL'),
        ({"url": "ftp://127.0.0.1/"}, 'url: "ftp'),
        ({"url": "http://user:secret@127.0.0.1/"}, "^url: this is no URL of a list; write one such as https://127"),
        ({"url": "http://user:p@ss/word@127.0.0.1/"}, "^url: this is no URL of a list; write one such as https://127"),
        ({"url": "ftp://127.0.0.1/?token=secret"}, "^url: this is no URL of a list; write one such as https://127"),
        ({"url": "http://127.0.0.1:99999/"}, 'url: "http'),
        ({"url": "http://127.0.0.1/a b"}, 'url: "http'),
        ({"url": "http://192.0.2.1/", "token": Secret("env", "T")}, "clear text"),
        ({"url": "https://192.0.2.1/", "key": Path("k")}, "key: is given without certificate"),
    ],
)
def test_what_cannot_be_asked_is_refused(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PolicyRulesConfig(**keys)


@pytest.mark.parametrize("key", ["ca", "certificate", "key"])
def test_check_reads_the_files_that_are_named(tmp_path: Path, key: str) -> None:
    pair = trustme.CA().issue_cert("client.example")
    pair.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pair.pem"))
    files = {"certificate": tmp_path / "pair.pem"} | {key: tmp_path / "absent.pem"}
    with pytest.raises(ConfigError, match=r"absent\.pem cannot be used: No such file or directory") as caught:
        TYPE.check(PolicyRulesConfig(url="https://192.0.2.1/", **files), default_registry())
    assert caught.value.path == key
    TYPE.check(PolicyRulesConfig(url="https://192.0.2.1/", certificate=tmp_path / "pair.pem"), default_registry())


def test_a_url_is_a_host_a_port_and_a_path() -> None:
    found = target_of("https://[2001:db8::1]/rules?node=a")
    assert (found.authority, found.path, found.is_here) == ("[2001:db8::1]:443", "/rules?node=a", False)
    assert target_of("http://localhost").path == "/"
    assert target_of("http://127.0.0.9:8080").is_here


async def test_it_ends_wherever_it_is_cancelled(server: PolicyServer) -> None:
    for mode in ("200", "silent"):
        with server.mode(mode), trio.move_on_after(0.3) as scope:
            async with TYPE.open(config(server), RecordingContext()):
                await trio.sleep_forever()
        assert scope.cancelled_caught


async def test_a_server_that_fails_is_not_asked_every_second_for_what_no_list_has(autojump_clock) -> None:
    asked: list[float] = []

    class Rules(policy_rules._PolicyRules):
        async def refresh(self) -> bool:
            asked.append(trio.current_time() - began)
            return len(asked) < 3

    rules = Rules(PolicyRulesConfig(url="http://127.0.0.1/", interval=Duration(5.0)), RecordingContext())
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rules.refresh_for_ever)
        for _ in range(44):
            rules.rule(999)
            await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    assert [round(at) for at in asked] == [1, 2, 3, 8, 13, 18]
