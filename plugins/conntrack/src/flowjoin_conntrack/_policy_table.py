"""Which rule a number stood for, and when: lists of rules as they were seen one after the other.

A number is given out again when its rule goes, and a connection keeps the number that it got. What cannot be said for
certain is not said: a rule is the answer only for times at which nobody else can have had its number.

Pure: a table is made of the one before it and of a list; it is never changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from flowjoin.api import PolicyRule

__all__ = ["PolicyTable", "Span", "rules_of"]

_POLICY_TYPES: Final = {"kubernetes": 1, "antrea": 2, "antreaCluster": 3}
_RULE_ACTIONS: Final = {"none": 0, "allow": 1, "drop": 2, "reject": 3}
_TEXTS: Final = ("policyName", "policyNamespace", "policyUid", "ruleName")
_LONGEST_TEXT: Final = 1024
_SPANS: Final = 8  # held of one number; older ones are forgotten
_GREATEST_ID: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A rule while it had its number; times are seconds since 1970.

    Attributes:
        generation: which giving-out of the number it is; 0 where that is not told.
        since: from when on it certainly was this rule.
        until: and until when; infinite while it is in the newest list.
    """

    rule: PolicyRule
    generation: int = 0
    since: float = -math.inf
    until: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The lists that were seen.

    Attributes:
        spans: by number, oldest first.
        seen_at: when the newest list was asked for.
        fresh: for so many seconds after that it is taken to be still true. Whoever gives out numbers keeps one that
            has become free for at least as long.
    """

    spans: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    seen_at: float = -math.inf
    fresh: float = math.inf

    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        """As ``PolicyLookup.rule``."""
        spans = self.spans.get(rule_id, ())
        if generation:
            return next((span.rule for span in reversed(spans) if span.generation == generation), None)
        if at is None:
            return spans[-1].rule if spans and spans[-1].until == math.inf else None
        if at > self.seen_at + self.fresh:
            return None
        then = [span.rule for span in spans if span.since <= at <= span.until]
        return then[0] if len(then) == 1 else None

    def still(self, asked_at: float) -> PolicyTable:
        """The newest list was asked for again, and is as it was."""
        return replace(self, seen_at=asked_at)

    def updated(self, rules: Mapping[int, Span], asked_at: float, *, most: int) -> PolicyTable:
        """Another list was seen.

        Args:
            rules: the list, by number; ``since`` is minus infinity where the list does not say it.
            asked_at: when it was asked for: what it says was so then or later.
            most: numbers of rules that are gone and still held.
        """
        spans: dict[int, tuple[Span, ...]] = {}
        for rule_id, span in rules.items():
            known = self.spans.get(rule_id, ())
            spans[rule_id] = (*self._ended(known, unless=span), self._begun(known, span, asked_at))[-_SPANS:]
        gone = [rule_id for rule_id in self.spans if rule_id not in rules]
        for rule_id in gone[:most]:  # those that went last come first
            spans[rule_id] = self._ended(self.spans[rule_id], unless=None)
        return replace(self, spans=spans, seen_at=asked_at)

    def _ended(self, known: tuple[Span, ...], *, unless: Span | None) -> tuple[Span, ...]:
        """What was known of a number, of which the last rule has gone unless it is the one that goes on."""
        if not known or known[-1].until != math.inf:
            return known
        if unless is not None and _is_same(known[-1], unless):
            return known[:-1]
        return (*known[:-1], replace(known[-1], until=self.seen_at))

    def _begun(self, known: tuple[Span, ...], span: Span, asked_at: float) -> Span:
        if known and known[-1].until == math.inf and _is_same(known[-1], span):
            return replace(span, since=max(known[-1].since, span.since))
        if span.since > -math.inf or (span.generation == 1 and not known):
            return span  # it says so itself, or nobody had the number before
        return replace(span, since=asked_at)


def _is_same(one: Span, other: Span) -> bool:
    """Whether a number goes on to be the same rule; where generations are told, a rule may change its names."""
    if one.generation or other.generation:
        return one.generation == other.generation
    return one.rule == other.rule


def rules_of(document: bytes, *, most: int) -> dict[int, Span]:
    """Read a list: JSON, the ``policies`` of the look-up ``file``.

    Raises:
        ValueError: a sentence that says what is wrong, and where.
    """
    try:
        parsed: Any = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("the answer is no JSON") from None
    entries = parsed.get("policies") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise ValueError('the answer has no list "policies"')
    if len(entries) > most:
        raise ValueError(f"the answer has {len(entries)} rules, more than maxRules ({most})")
    rules: dict[int, Span] = {}
    for number, entry in enumerate(entries):
        rule_id, span = _span(entry, f"policies[{number}]")
        if rule_id in rules:
            raise ValueError(f"policies[{number}] has the rule {rule_id} again")
        rules[rule_id] = span
    return rules


def _span(entry: object, place: str) -> tuple[int, Span]:
    if not isinstance(entry, dict):
        raise ValueError(f"{place} is no mapping")
    texts = {key: entry.get(key, "") for key in _TEXTS}
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
            raise ValueError(f"{place}.{key} is no text of at most {_LONGEST_TEXT} characters")
    if not texts["policyName"]:
        raise ValueError(f"{place} has no policyName")
    rule = PolicyRule(
        policy_name=texts["policyName"],
        policy_namespace=texts["policyNamespace"],
        policy_uid=texts["policyUid"],
        policy_type=_word(entry, "policyType", "kubernetes", _POLICY_TYPES, place),
        rule_name=texts["ruleName"],
        rule_action=_word(entry, "ruleAction", "none", _RULE_ACTIONS, place),
    )
    generation = _number(entry.get("generation", 0), f"{place}.generation", least=0)
    since = _time(entry["from"], f"{place}.from") if "from" in entry else -math.inf
    return _number(entry.get("rule"), f"{place}.rule", least=1), Span(rule=rule, generation=generation, since=since)


def _word(entry: Mapping[Any, Any], key: str, default: str, words: Mapping[str, int], place: str) -> int:
    word = entry.get(key, default)
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{place}.{key} is none of {', '.join(words)}")
    return words[word]


def _number(value: object, place: str, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _GREATEST_ID:
        raise ValueError(f"{place} is no number from {least} to {_GREATEST_ID}")
    return value


def _time(value: object, place: str) -> float:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{place} is no time with its zone, such as 2026-01-02T03:04:05Z")
    return moment.timestamp()
