"""Flow records joined and merged in the most naive way: a dictionary a flow, sorted lists, no packing.

Written from the rules as a user would state them, to be compared with the kernel; it shares no code with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]


@dataclass
class NaiveFlow:
    key: Key
    serial: int
    is_antrea: bool
    ready: bool
    active: float
    idle: float
    seen: float
    values: dict[str, Any]
    sides: dict[str, dict[str, int]] = field(default_factory=dict)
    side: str = ""
    retries: int = 0
    updated: bool = True

    @property
    def due(self) -> tuple[float, int]:
        return min(self.active, self.idle), self.serial


class NaiveTable:
    def __init__(self, limit: int, active: float, idle: float) -> None:
        self.limit, self.active, self.idle = limit, active, idle
        self.flows: dict[Key, NaiveFlow] = {}
        self.departed: list[dict[str, Any]] = []
        self.serial = 0
        self.counts = dict.fromkeys(
            ("created", "merged", "older", "given_up", "exported_last", "evicted", "clamped", "rows"), 0
        )

    def shift(self, seconds: float) -> None:
        """The clock says another time than before."""
        for flow in self.flows.values():
            flow.active += seconds
            flow.idle += seconds
            flow.seen += seconds

    # -- Antrea

    def antrea(self, record: dict[str, Any], now: float) -> None:
        external_half = record["flowType"] == 4 and not record["destinationPodName"] and record["snat"] is not None
        denied = record["egress"] in (2, 3) or record["ingress"] == 3
        needs = (record["flowType"] == 2 or external_half) and not denied
        if external_half or (record["sourcePodName"] and not record["destinationPodName"]):
            side = "source"
        elif record["destinationPodName"] and not record["sourcePodName"]:
            side = "destination"
        else:
            side = "neither"
        if not needs:
            reported = ["source", "destination"]
        else:
            reported = ["source"] if side == "source" else ["destination"]
        source = record["snat"] if external_half else (record["source"], record["sourcePort"])
        key = ("antrea", record["family"], source, record["destinationPort"])
        flow = self.flows.get(key)
        start, end = record["start"], record["end"]
        if flow is None:
            rate = record["total"] * 8 // (end - start) if end > start else 0
            values = {
                name: record[name] for name in ("sourcePodName", "destinationPodName", "flowType", "end", "total")
            }
            values |= {"delta": record["delta"], "rate": rate, "shown": (record["source"], record["sourcePort"])}
            flow = self._new(key, is_antrea=True, ready=not needs, values=values, now=now)
            flow.side = side
            for each in ("source", "destination"):
                is_told = each in reported
                flow.sides[each] = {
                    "end": end if is_told else 0,
                    "total": record["total"] if is_told else 0,
                    "delta": record["delta"] if is_told else 0,
                }
            return
        joins = needs and not flow.ready and (side == "neither" or side != flow.side)
        if joins:
            for name in ("sourcePodName", "destinationPodName"):
                flow.values[name] = record[name] or flow.values[name]
            if external_half:
                flow.values["flowType"] = 4
                flow.values["shown"] = (record["source"], record["sourcePort"])
        latest = end >= flow.values["end"]
        flow.values["end"] = max(end, flow.values["end"])
        for each in reported:
            previous = flow.sides[each]["end"] or start
            flow.sides[each]["end"] = end
        newer = end > previous
        if newer:
            for each in reported:
                growth = record["total"] - flow.sides[each]["total"]
                flow.sides[each]["total"] = record["total"]
                flow.sides[each]["delta"] += record["delta"]
                accumulated = flow.sides[each]["delta"]
            self.counts["clamped"] += growth < 0
            if latest:
                flow.values["total"] = max(flow.values["total"], record["total"])
                flow.values["delta"] = accumulated
                flow.values["rate"] = max(growth, 0) * 8 // (end - previous)
        self.counts["merged" if joins or newer else "older"] += 1
        self._touch(flow, now)
        if joins:
            flow.ready = True
            flow.active = now

    # -- plain

    def plain(self, record: dict[str, Any], now: float) -> None:
        key = ("plain", record["family"], record["peer"], record["domain"], record["sourcePort"])
        flow = self.flows.get(key)
        if flow is None:
            values = {"total": 0, "delta": 0, "end": 0, "shown": (record["source"], record["sourcePort"])}
            flow = self._new(key, is_antrea=False, ready=True, values=values, now=now)
        else:
            self.counts["merged"] += 1
            self._touch(flow, now)
        values = flow.values
        latest = record["end"] >= values["end"]
        if record["has"] == "delta":
            values["delta"] += record["delta"]
            values["total"] += record["delta"]
        elif record["has"] == "total":
            growth = record["total"] - values["total"]
            self.counts["clamped"] += growth < 0 and latest
            values["delta"] += max(growth, 0)
            values["total"] = max(values["total"], record["total"])
        else:
            values["delta"] += record["delta"]
            values["total"] = max(values["total"], record["total"])
        values["end"] = max(values["end"], record["end"])

    # -- both

    def _new(self, key: Key, *, is_antrea: bool, ready: bool, values: dict[str, Any], now: float) -> NaiveFlow:
        if len(self.flows) == self.limit:
            self._evict()
        flow = NaiveFlow(
            key, self.serial, is_antrea, ready, now if ready else now + self.active, now + self.idle, now, values
        )
        self.serial += 1
        self.flows[key] = flow
        self.counts["created"] += 1
        return flow

    def _touch(self, flow: NaiveFlow, now: float) -> None:
        flow.seen, flow.idle, flow.updated = now, now + self.idle, True

    def _evict(self) -> None:
        ready = [flow for flow in self.flows.values() if flow.ready]
        if ready:
            leaving = min(ready, key=lambda flow: (flow.seen, flow.serial))
        else:
            leaving = min(self.flows.values(), key=lambda flow: flow.serial)
        del self.flows[leaving.key]
        self.counts["evicted"] += 1
        if leaving.updated:
            self.departed.append(self.row(leaving))

    def next_expiry(self, now: float) -> float | None:
        if self.departed:
            return now
        return min((flow.due[0] for flow in self.flows.values()), default=None)

    def expire(self, now: float, limit: int) -> list[dict[str, Any]]:
        rows = self.departed[:limit]
        self.departed = self.departed[limit:]
        left = limit - len(rows)
        while left and self.flows:
            flow = min(self.flows.values(), key=lambda flow: flow.due)
            if flow.due[0] > now:
                break
            left -= 1
            if not flow.ready:
                flow.retries += 1
                if flow.retries > 2:
                    del self.flows[flow.key]
                    self.counts["given_up"] += 1
                else:
                    flow.active, flow.idle = now + self.active, now + self.idle
                continue
            if flow.updated:
                rows.append(self.row(flow))
                flow.updated = False
                flow.values["delta"] = 0
                flow.values["rate"] = 0
                for side in flow.sides.values():
                    side["delta"] = 0
            if flow.idle <= now:
                del self.flows[flow.key]
                self.counts["exported_last"] += 1
            else:
                flow.active = now + self.active
        self.counts["rows"] += len(rows)
        return rows

    def row(self, flow: NaiveFlow) -> dict[str, Any]:
        row = {
            "origin": "aggregated" if flow.is_antrea else "plain",
            "shown": flow.values["shown"],
            "octetTotalCount": flow.values["total"],
            "octetDeltaCount": flow.values["delta"],
        }
        if flow.is_antrea:
            row |= {
                "sourcePodName": flow.values["sourcePodName"],
                "destinationPodName": flow.values["destinationPodName"],
                "flowType": flow.values["flowType"],
                "throughput": flow.values["rate"],
                "octetTotalCountFromSourceNode": flow.sides["source"]["total"],
                "octetTotalCountFromDestinationNode": flow.sides["destination"]["total"],
                "octetDeltaCountFromSourceNode": flow.sides["source"]["delta"],
                "octetDeltaCountFromDestinationNode": flow.sides["destination"]["delta"],
            }
        return row
