from __future__ import annotations

import signal

from flowjoin._pipeline.last_resort import LastResort


def left() -> float:
    return signal.getitimer(signal.ITIMER_PROF)[0]


def test_the_timer_runs_while_it_is_wanted_and_begins_anew_when_it_is_put_off() -> None:
    resort = LastResort(1000.0)
    resort.put_off()
    assert left() == 0
    with resort.running():
        assert 900 < left() <= 1001
        signal.setitimer(signal.ITIMER_PROF, 500)
        resort.put_off()
        assert 900 < left() <= 1001
    assert left() == 0
    resort.put_off()  # a thread that was late
    assert left() == 0
