"""When original exporters started, as they say in options records: uptimes in later data records count from it.

Some exporters (softflowd) send ``systemInitTimeMilliseconds`` once, in an options record, and only
``flowStartSysUpTime`` and ``flowEndSysUpTime`` with each flow. What one told counts for its Transport Session and
observation domain, from there on in wire order, until it tells another. Invariant: bounded, and of sessions that are
over nothing is held.
"""

from __future__ import annotations

from typing import Final

from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.events import DataSetReceived

__all__ = ["InitTimes"]

_INIT_TIME: Final = "systemInitTimeMilliseconds"
_DOMAINS_PER_SESSION: Final = 1_024  # as many as the decoder follows; beyond it the one told first is forgotten
_DOMAINS: Final = 65_536  # over all sessions; beyond it no new one is noted


class InitTimes:
    """The times told, by session and observation domain."""

    def __init__(self) -> None:
        self._of_sessions: dict[TransportSession, dict[int, int]] = {}
        self._domains = 0

    def __len__(self) -> int:
        return self._domains

    def note(self, session: TransportSession, options: DataSetReceived) -> None:
        """Take what a Set of options records tells; of several times in it the last that is not 0."""
        names = [field.element.name for field in options.template.fields]
        if _INIT_TIME not in names:
            return
        at = names.index(_INIT_TIME)
        told = [record[at] for record in options.records]
        # bytes: the Template gave the field a length that is no time's
        times = [value for value in told if isinstance(value, int) and value > 0]
        if times:
            self._keep(session, options.header.observation_domain_id, times[-1])

    def of(self, session: TransportSession, domain: int) -> int:
        """Milliseconds since the Unix epoch; 0 if nothing was told."""
        if not self._domains:
            return 0
        return self._of_sessions.get(session, {}).get(domain, 0)

    def forget(self, session: TransportSession) -> None:
        """The session is over."""
        self._domains -= len(self._of_sessions.pop(session, ()))

    def _keep(self, session: TransportSession, domain: int, time: int) -> None:
        times = self._of_sessions.get(session, {})
        if domain not in times:
            if len(times) >= _DOMAINS_PER_SESSION:
                del times[next(iter(times))]
                self._domains -= 1
            elif self._domains >= _DOMAINS:
                return
            self._domains += 1
        times[domain] = time
        self._of_sessions[session] = times
