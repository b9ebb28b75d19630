"""The look-up ``policy_rules``: names of network policies by their rules' numbers, from a list served over HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import trio

from flowjoin.api import (
    Bounds,
    ConfigError,
    Duration,
    ElementRegistry,
    LookupType,
    Octets,
    PluginContext,
    PolicyLookup,
    PolicyRule,
    Secret,
    hookimpl,
)
from flowjoin.api.tls import client_context
from flowjoin_conntrack._http import Answer, HttpTrouble, get, target_of
from flowjoin_conntrack._policy_table import PolicyTable, rules_of

__all__ = ["PolicyRulesConfig", "flowjoin_lookup_types"]

_OK, _NOT_MODIFIED = 200, 304
_LONGEST_WAIT: Final = 60.0  # between attempts
_SOONEST: Final = 1.0  # after an attempt, where a number is asked for that nobody has


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRulesConfig:
    """The keys of the look-up."""

    url: Annotated[str, "of the list: JSON, as the policies of the look-up file"]
    token: Annotated[Secret | None, "sent as Authorization: Bearer"] = None
    ca: Annotated[Path | None, "certificates to verify the server's with; default: the system's"] = None
    certificate: Annotated[Path | None, "shown to the server, with its chain"] = None
    key: Annotated[Path | None, "the certificate's private key; default: in the certificate's file"] = None
    interval: Annotated[Duration, Bounds(1, 3600), "how often the list is asked for"] = Duration(5.0)
    timeout: Annotated[Duration, Bounds(0.1, 60), "for a whole answer"] = Duration(10.0)
    max_rules: Annotated[int, Bounds(1), "in the list, and of those that are gone"] = 100_000
    max_size: Annotated[Octets, Bounds(1), "of an answer"] = Octets(64 * 1024 * 1024)

    def __post_init__(self) -> None:
        try:
            target = target_of(self.url)
        except ValueError:
            # What stands before an @ may be a password, and after a ? a token.
            shown = "this" if "@" in self.url or "?" in self.url else f'"{self.url[:80]}"'
            problem = f"{shown} is no URL of a list; write one such as https://127.0.0.1:8443/rules"
            raise ConfigError(problem, path="url") from None
        if self.token is not None and not target.is_tls and not target.is_here:
            raise ConfigError("would cross the network in clear text; write an https URL", path="token")
        if self.key is not None and self.certificate is None:
            raise ConfigError("is given without certificate; name the certificate's PEM file too", path="key")

    def tls(self) -> ssl.SSLContext:
        """For a connection now; blocking, for the files are read each time: they are rotated.

        Raises:
            OSError: a file cannot be read, or is no certificate or key.
        """
        context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class _PolicyRules:
    """Answers from the lists that were seen."""

    def __init__(self, config: PolicyRulesConfig, context: PluginContext) -> None:
        self._config = config
        self._context = context
        self._target = target_of(config.url)
        self._table = PolicyTable(fresh=2 * config.interval)
        self._etag = ""
        self._is_missed = trio.Event()
        self._lists = context.counter("policy_lists", "Lists of policy rules that were read.")
        self._failures = context.counter("failed_policy_lists", "Times the list of policy rules could not be read.")
        self._unknown = context.counter("unknown_policy_rules", "Questions for numbers that no list has.")

    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        found = self._table.rule(rule_id, generation, at)
        if found is None and rule_id not in self._table.spans:
            self._unknown.inc()
            self._is_missed.set()
        return found

    async def refresh_for_ever(self) -> None:
        """Every interval, ever less often while it fails; sooner where a number is asked for that is not in the list.

        Soon while it succeeds; while it fails at the interval, for a server that is in trouble has enough of that.
        """
        interval = float(self._config.interval)
        wait, soonest = interval, min(_SOONEST, interval)
        while True:
            began = trio.current_time()
            with trio.move_on_at(began + wait):
                await self._is_missed.wait()
                await trio.sleep_until(began + soonest)
            self._is_missed = trio.Event()
            if await self.refresh():
                wait, soonest = interval, min(_SOONEST, interval)
            else:
                wait, soonest = max(wait, min(2 * wait, _LONGEST_WAIT)), interval

    async def refresh(self) -> bool:
        """Ask for the list; whether it came."""
        asked_at = time.time()
        try:
            with trio.fail_after(float(self._config.timeout)):
                answer = await self._ask()
            await self._take(answer, asked_at)
        except (HttpTrouble, ConfigError, ValueError, trio.TooSlowError) as exc:
            problem = f"no answer within {self._config.timeout:g} s" if isinstance(exc, trio.TooSlowError) else str(exc)
            self._failures.inc()
            self._context.impaired(f"the policy rules are those of earlier: {problem}")
            self._context.log.warning("policy_rules_not_read", problem=problem)
            return False
        self._lists.inc()
        self._context.impaired("")
        return True

    async def _ask(self) -> Answer:
        headers = [("Accept", "application/json"), ("User-Agent", "flowjoin-conntrack")]
        if self._etag:
            headers.append(("If-None-Match", self._etag))
        if self._config.token is not None:
            token = await trio.to_thread.run_sync(self._config.token.reveal)
            headers.append(("Authorization", f"Bearer {token}"))
        return await get(self._target, self._config.tls, headers, most_octets=self._config.max_size)

    async def _take(self, answer: Answer, asked_at: float) -> None:
        if answer.status == _NOT_MODIFIED and self._etag:
            self._table = self._table.still(asked_at)
            return
        if answer.status != _OK:
            raise HttpTrouble(f"{self._target.authority} answers {answer.status}")
        config, table = self._config, self._table

        def read() -> PolicyTable:  # in a thread: a large list takes longer than trio's thread may be held
            return table.updated(rules_of(answer.body, most=config.max_rules), asked_at, most=config.max_rules)

        self._table = await trio.to_thread.run_sync(read)
        self._etag = answer.etag


@asynccontextmanager
async def _open(config: PolicyRulesConfig, context: PluginContext) -> AsyncIterator[_PolicyRules]:
    rules = _PolicyRules(config, context)
    await (
        rules.refresh()
    )  # a server that is not there yet is asked again; connections are told without names until then
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rules.refresh_for_ever)
        yield rules
        nursery.cancel_scope.cancel()


@hookimpl
def flowjoin_lookup_types() -> list[LookupType]:
    """Hand over the type that ``type: policy_rules`` stands for."""
    return [
        LookupType(
            "policy_rules", PolicyRulesConfig, (PolicyLookup,), _open, api_version=1, patience=_patience, check=_check
        )
    ]


def _check(config: PolicyRulesConfig, _registry: ElementRegistry) -> None:
    client_context(ca=config.ca, certificate=config.certificate, key=config.key, path="")


def _patience(config: PolicyRulesConfig) -> float:
    """Opening waits for one answer."""
    return 2 * float(config.timeout)
