"""The keys under ``exporters: [{type: log, …}]``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Final, Literal

from flowjoin.api import Bounds, ConfigError, ElementRegistry, Remark
from flowjoin.api.lines import refuse_unknown_elements

__all__ = ["ACTION_NUMBERS", "STANDARD_OUTPUT", "FilterConfig", "LogConfig", "check", "patience"]

ACTION_NUMBERS: Final = {"None": 0, "Allow": 1, "Drop": 2, "Reject": 3}
STANDARD_OUTPUT: Final = frozenset({"-", "/dev/stdout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """One filter: it matches a flow whose actions are in both lists; an empty list contains every action."""

    ingress_network_policy_rule_actions: Annotated[tuple[str, ...], "any of None, Allow, Drop, Reject"] = ()
    egress_network_policy_rule_actions: Annotated[tuple[str, ...], "any of None, Allow, Drop, Reject"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Where flows are written, and how.

    Sizes and ages are counted as Antrea's ``flowLogger`` section counts them: in megabytes and days.
    """

    path: Annotated[str, "the file; - or /dev/stdout writes to standard output"]
    format: Annotated[Literal["csv", "jsonLines", "table"], "table is for people at a terminal"] = "csv"
    header: Annotated[bool, "csv: begin each file with a line of column names"] = False
    csv_quoting: Annotated[
        Literal["rfc4180", "antrea"], "csv: quote what needs it, or nothing at all as Antrea does"
    ] = "rfc4180"
    pretty_print: Annotated[bool, "csv: names for protocols, rule actions and policy types instead of numbers"] = True
    time_format: Annotated[Literal["epoch", "iso8601"], "csv and jsonLines: how times are written"] = "epoch"
    omit_defaults: Annotated[bool, "jsonLines: leave out elements that have their default value"] = False
    elements: Annotated[tuple[str, ...], "Information Elements to add after the usual columns"] = ()
    filters: Annotated[tuple[FilterConfig, ...], "flows that match none are not written; empty: all are"] = ()
    max_size: Annotated[
        int, Bounds(1, 2**31 - 1), "megabytes (1048576 octets) a file may reach before it is rotated"
    ] = 100
    max_backups: Annotated[int, Bounds(0, 2**31 - 1), "rotated files kept; 0 keeps all"] = 3
    max_age: Annotated[int, Bounds(0, 36_500), "days a rotated file is kept; 0 is for ever"] = 0
    compress: Annotated[bool, "compress rotated files with gzip"] = True

    def __post_init__(self) -> None:
        if not self.path.strip() or "\0" in self.path or self.path.endswith("/"):
            problem = f"must be the path of a file, or - for standard output, not {self.path!r}"
            raise ConfigError(problem, path="path")
        if self.path.startswith("~"):
            problem = f"{self.path!r} begins with ~, which only a shell understands; write it in full"
            raise ConfigError(problem, path="path")


def check(config: LogConfig, registry: ElementRegistry) -> list[Remark]:
    """What can be known before the file is opened.

    Returns:
        Names of actions that do not exist: as in Antrea they match nothing, which nobody wants.

    Raises:
        ConfigError: an element is unknown, or a directory has the file's name.
    """
    refuse_unknown_elements(config.elements, registry)
    try:
        is_directory = config.path not in STANDARD_OUTPUT and Path(config.path).is_dir()
    except ValueError:  # letters that file names do not have here: opening it says more
        is_directory = False
    if is_directory:
        raise ConfigError(f"{config.path} is a directory; name a file in it", path="path")
    remarks = []
    for index, each in enumerate(config.filters):
        for key, names in (
            ("ingressNetworkPolicyRuleActions", each.ingress_network_policy_rule_actions),
            ("egressNetworkPolicyRuleActions", each.egress_network_policy_rule_actions),
        ):
            for position, name in enumerate(names):
                if name not in ACTION_NUMBERS:
                    problem = f'"{name[:60]}" is no action and never matches; {_meant(name)}'
                    remarks.append(Remark(problem=problem, path=f"filters[{index}].{key}[{position}]"))
    return remarks


def _meant(name: str) -> str:
    near = difflib.get_close_matches(name.capitalize(), ACTION_NUMBERS, n=1)
    return f'did you mean "{near[0]}"?' if near else f"the actions are {', '.join(ACTION_NUMBERS)}"


def patience(config: LogConfig) -> float:
    """Who reads standard output may stop for as long as they like, and a second writer would mix its lines in."""
    return inf if config.path in STANDARD_OUTPUT else 0.0
