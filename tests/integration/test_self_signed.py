"""The certificate that a server makes for itself: how long it is good, and when there is another."""

from __future__ import annotations

import ssl

import certificates
import pytest
import trio
from pipeline_fakes import MemoryLog

from flowjoin._certificates.files import ServerTls
from flowjoin._certificates.self_signed import SelfSigned, open_self_signed

DAY = 86_400.0
NOW = float(int(certificates.NOW.timestamp()))  # certificates count whole seconds


async def stub(now: float) -> ServerTls:
    """One that is good for a year, as the real one, and made at once."""
    await trio.lowlevel.checkpoint()
    return ServerTls(context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), expires=now + 365 * DAY)


async def test_it_is_good_for_a_year_less_what_it_is_backdated():
    async with open_self_signed(
        ["localhost"], minimum_version=ssl.TLSVersion.TLSv1_2, ciphers="", log=MemoryLog(), wall=lambda: NOW
    ) as made:
        await made.wait_ready()
        assert made.current.expires == NOW + 365 * DAY - 3600


@pytest.mark.parametrize(
    ("jump", "is_renewed"),
    [
        pytest.param(0, False, id="an hour later"),
        pytest.param(274 * DAY, False, id="91 days before its end"),
        pytest.param(276 * DAY, True, id="less than 90 days before its end"),
        pytest.param(3650 * DAY, True, id="long after it"),
        pytest.param(-DAY, True, id="the clock was fast when it was made"),
    ],
)
async def test_it_is_made_anew_ninety_days_before_its_end_and_when_the_clock_was_fast(
    autojump_clock, jump: float, is_renewed: bool
):
    log = MemoryLog()
    ahead = 0.0
    made = SelfSigned(stub, log, lambda: NOW + trio.current_time() + ahead)
    await made.renew()
    first, begun = made.current, trio.current_time()
    ahead = jump
    with trio.move_on_after(3601):
        await made.run()
    assert (made.current is not first) == is_renewed
    if is_renewed:
        assert made.current.expires == NOW + begun + 3600 + jump + 365 * DAY
    assert log.events() == ["certificate_replaced"] * is_renewed


async def test_a_server_that_runs_for_years_never_shows_one_that_has_ended(autojump_clock):
    log = MemoryLog()
    made = SelfSigned(stub, log, lambda: NOW + trio.current_time())
    await made.renew()
    left = []

    async def look() -> None:
        while True:
            left.append(made.current.expires - NOW - trio.current_time())
            await trio.sleep(DAY)

    with trio.move_on_after(3 * 365 * DAY):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            nursery.start_soon(look)
    assert len(left) == 3 * 365
    assert min(left) > 89 * DAY


async def test_no_cipher_of_that_name_is_said_at_once():
    with pytest.raises(ValueError, match="no cipher"):
        async with open_self_signed(
            ["localhost"], minimum_version=ssl.TLSVersion.TLSv1_2, ciphers="ROT13", log=MemoryLog()
        ):
            pytest.fail("it is not opened")
