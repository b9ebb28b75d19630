"""An authority that replicas share: what is made anew when, and that all end with one."""

from __future__ import annotations

import datetime
import ssl
import stat

import certificates
import pytest
import trio
from certificate_store import MemoryStore
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from flowjoin._certificates.authority import Authority, DirectoryStore, open_authority
from flowjoin._certificates.directory import CertificateDirectory
from flowjoin._certificates.profiles import make_authority, make_client
from flowjoin._certificates.renewal import authority_problem, client_problem, pair_of
from flowjoin.api import CertificateObject
from flowjoin.testing import RecordingContext

NAMES = ("flow-aggregator.flow-aggregator.svc", "localhost")
AUTHORITY, CLIENT, PUBLISHED = (
    CertificateObject.AUTHORITY,
    CertificateObject.CLIENT,
    CertificateObject.AUTHORITY_CERTIFICATE,
)


class Clock:
    def __init__(self) -> None:
        self.now = certificates.NOW.timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(store: object, clock: Clock) -> Authority:
    return Authority(store, NAMES, RecordingContext(name="core").log, lambda _problem: None, clock)  # type: ignore[arg-type]


def shakes_hands(authority: Authority, store: MemoryStore) -> bool:
    """Whether a client with what is published now gets in, and takes the server for what it is."""
    client = pair_of(store.objects[CLIENT].data)
    assert client is not None
    ca = store.objects[PUBLISHED].data["ca.crt"].decode()
    assert authority.current is not None
    return certificates.shakes_hands(authority.current.context, ca, client, NAMES[0])


async def test_the_first_sync_makes_and_publishes_everything_and_the_second_nothing(store, clock):
    authority = make(store, clock)
    assert authority.current is None
    await authority.sync()
    assert store.take_written() == [AUTHORITY, CLIENT, PUBLISHED]
    assert set(store.objects[AUTHORITY].data) == set(store.objects[CLIENT].data) == {"tls.crt", "tls.key"}
    assert store.objects[PUBLISHED].data == {"ca.crt": store.objects[AUTHORITY].data["tls.crt"]}
    assert shakes_hands(authority, store)
    first = authority.current
    await authority.sync()
    assert store.take_written() == []
    assert authority.current is first


async def test_certificates_are_named_by_what_they_are_and_when_they_were_made(store, clock):
    await make(store, clock).sync()
    for name, kind in ((AUTHORITY, "ca"), (CLIENT, "client-certificate")):
        certificate = x509.load_pem_x509_certificate(store.objects[name].data["tls.crt"])
        assert certificate.subject.rfc4514_string() == f"CN=flow-aggregator-{kind}@{int(clock.now)}"


@pytest.mark.parametrize(
    ("deleted", "written", "is_server_new"),
    [
        (CLIENT, [CLIENT], False),
        (PUBLISHED, [PUBLISHED], False),
        (AUTHORITY, [AUTHORITY, CLIENT, PUBLISHED], True),
    ],
)
async def test_what_was_deleted_is_made_again_with_what_hangs_on_it(store, clock, deleted, written, is_server_new):
    authority = make(store, clock)
    await authority.sync()
    before, published = authority.current, store.objects[PUBLISHED].data
    store.take_written()
    del store.objects[deleted]
    await authority.sync()
    assert store.take_written() == written
    assert (authority.current is not before) == is_server_new
    assert (store.objects[PUBLISHED].data != published) == is_server_new
    assert shakes_hands(authority, store)


async def test_after_two_years_everything_is_new(store, clock):
    authority = make(store, clock)
    await authority.sync()
    before = authority.current
    store.take_written()
    clock.now += 2 * 365 * 86400
    await authority.sync()
    assert store.take_written() == [AUTHORITY, CLIENT, PUBLISHED]
    assert authority.current is not before


@pytest.mark.parametrize("name", [AUTHORITY, CLIENT])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: {"tls.crt": data["tls.crt"]},
        lambda data: {**data, "tls.key": b""},
        lambda data: {**data, "tls.crt": b"no PEM"},
        lambda data: {**data, "tls.key": certificates.client().key},
    ],
    ids=["no key", "empty key", "no PEM", "key of another"],
)
async def test_what_cannot_be_used_is_made_again(store, clock, name, spoil):
    authority = make(store, clock)
    await authority.sync()
    store.take_written()
    store.set(name, spoil(store.objects[name].data))
    await authority.sync()
    assert name in store.take_written()
    assert shakes_hands(authority, store)


@pytest.mark.parametrize(
    ("after", "is_renewed"),
    [
        (datetime.timedelta(days=365 - 90) + datetime.timedelta(minutes=1), True),
        (datetime.timedelta(days=365 - 90) - datetime.timedelta(minutes=1), False),
    ],
)
def test_ninety_days_before_its_end_a_certificate_is_renewed(after, is_renewed):
    begins = certificates.NOW.replace(microsecond=0)
    authority = make_authority("ca", begins + datetime.timedelta(hours=1))
    client = make_client(authority, "client", begins + datetime.timedelta(hours=1))
    assert (authority_problem(authority, begins + after) is not None) == is_renewed
    assert (client_problem(client, authority, begins + after) is not None) == is_renewed


def test_a_client_of_another_authority_or_for_servers_is_renewed():
    authority = certificates.authority()
    assert client_problem(certificates.client(), authority, certificates.NOW) is None
    other = client_problem(certificates.client("other"), authority, certificates.NOW)
    assert other == "it is not of the present authority"
    assert client_problem(certificates.server(), authority, certificates.NOW) == "it is not for clients"
    assert authority_problem(certificates.client(), certificates.NOW) == "it is no authority"


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()], ids=["EC", "EdDSA"]
)
@pytest.mark.parametrize("is_issued", [False, True], ids=["of its own", "of one above"])
async def test_an_authority_that_somebody_has_put_there_is_taken_whatever_its_key(store, clock, key, is_issued):
    theirs = certificates.authority_with(key, issuer=certificates.authority("root") if is_issued else None)
    store.set(AUTHORITY, {"tls.crt": theirs.certificate, "tls.key": theirs.key})
    authority = make(store, clock)
    await authority.sync()
    assert store.take_written() == [CLIENT, PUBLISHED]
    assert store.objects[PUBLISHED].data == {"ca.crt": theirs.certificate}
    assert authority.current is not None
    client = pair_of(store.objects[CLIENT].data)
    # An agent's TLS, Go's, takes any authority that it is given for the top of a chain; OpenSSL is asked to.
    context = certificates.client_context_of(theirs.certificate.decode(), client)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    assert certificates.is_handshake(context, authority.current.context, NAMES[0])


async def test_an_authority_from_the_future_is_used_and_the_clock_is_named(store, clock):
    theirs = make_authority("theirs", certificates.NOW + datetime.timedelta(days=2))
    store.set(AUTHORITY, {"tls.crt": theirs.certificate, "tls.key": theirs.key})
    authority = make(store, clock)
    await authority.sync()
    assert store.take_written() == [CLIENT, PUBLISHED]
    assert authority.current is not None
    ((path, problem),) = authority.current.remarks
    assert path == "core/certificates.client_ca"
    assert "look at this machine's clock" in problem


async def test_an_authority_of_our_own_from_the_future_is_made_anew_and_the_clock_is_named(store, clock):
    right = clock.now
    clock.now += 10 * 86400
    authority = make(store, clock)
    await authority.sync()
    before, _ = store.objects[AUTHORITY].data, store.take_written()
    clock.now = right
    log = RecordingContext(name="core").log
    authority = Authority(store, NAMES, log, lambda _problem: None, clock)
    await authority.sync()
    assert store.take_written() == [AUTHORITY, CLIENT, PUBLISHED]
    assert store.objects[AUTHORITY].data != before
    assert authority.current is not None
    assert authority.current.remarks == ()
    assert shakes_hands(authority, store)
    reasons = [line.facts["reason"] for line in log.lines if line.event == "certificate_issued"]
    assert "for a clock was fast when it was made" in reasons[0]


async def test_a_clock_before_there_was_any_flowjoin_takes_nothing_for_too_new(store, clock):
    authority = make(store, clock)
    await authority.sync()
    store.take_written()
    clock.now = 0.0
    await make(store, clock).sync()
    assert store.take_written() == []


@pytest.mark.parametrize(
    ("later", "is_new"),
    [
        (datetime.timedelta(hours=-2), True),
        (datetime.timedelta(minutes=-30), False),
        (datetime.timedelta(days=274), False),
        (datetime.timedelta(days=276), True),
    ],
)
async def test_the_servers_certificate_is_made_anew_after_the_clock_was_set(store, clock, later, is_new):
    theirs = make_authority("theirs", certificates.NOW, validity=datetime.timedelta(days=4000))
    store.set(AUTHORITY, {"tls.crt": theirs.certificate, "tls.key": theirs.key})
    authority = make(store, clock)
    await authority.sync()
    first = authority.current
    clock.now += later.total_seconds()
    await authority.sync()
    assert (authority.current is not first) == is_new
    assert store.objects[AUTHORITY].data["tls.crt"] == theirs.certificate


async def test_who_undoes_what_we_write_does_not_make_us_race(store, clock, autojump_clock):
    authority_log = RecordingContext(name="core").log
    async with open_authority(
        store, names=NAMES, log=authority_log, report=lambda _problem: None, wall=clock
    ) as authority:
        await authority.wait_ready()
        put = store.put

        async def undone(name, data, replaces):
            is_written = await put(name, data, replaces)
            del store.objects[PUBLISHED]
            store.touch()
            return is_written

        store.put = undone
        store.take_written()
        with trio.move_on_after(20):
            del store.objects[PUBLISHED]
            store.touch()
            await trio.sleep_forever()
    assert 10 <= len(store.take_written()) <= 21


async def test_replicas_that_start_together_end_with_one_authority(store, clock):
    replicas = [make(store, clock) for _ in range(3)]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for replica in replicas:
                nursery.start_soon(replica.sync)
    assert store.written.count(AUTHORITY) == store.written.count(CLIENT) == store.written.count(PUBLISHED) == 1
    assert all(shakes_hands(replica, store) for replica in replicas)


async def test_a_change_by_another_replica_is_taken_while_running_and_failures_are_survived(store, clock):
    problems: list[Exception | None] = []
    reported = trio.Event()
    failures = 2

    def report(problem: Exception | None) -> None:
        nonlocal reported
        problems.append(problem)
        reported.set()
        reported = trio.Event()

    def fail(_name: CertificateObject) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("the API server is away")

    store.before_put = fail
    log = RecordingContext(name="core").log
    with trio.fail_after(60):
        async with open_authority(store, names=NAMES, log=log, report=report, wall=clock) as authority:
            await authority.wait_ready()
            first = authority.current
            new = make_authority("theirs", certificates.NOW)
            store.set(AUTHORITY, {"tls.crt": new.certificate, "tls.key": new.key})
            while authority.current is first:
                await reported.wait()
            assert shakes_hands(authority, store)
            assert store.objects[PUBLISHED].data == {"ca.crt": new.certificate}
    assert [str(problem) for problem in problems[:2]] == ["the API server is away"] * 2
    assert problems[-1] is None


async def test_an_authority_is_kept_in_a_directory_with_keys_that_only_we_read(tmp_path, clock):
    directory = tmp_path / "certificates"
    store = DirectoryStore(CertificateDirectory(directory))
    await make(store, clock).sync()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert {name: mode for name, mode in modes.items() if name.endswith(".key")} == {
        "ca.key": 0o600,
        "client.key": 0o600,
    }
    assert set(modes) == {"ca.crt", "ca.key", "client.crt", "client.key"}
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    await make(store, clock).sync()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    (directory / "client.key").unlink()
    await make(store, clock).sync()
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert after["ca.crt"] == before["ca.crt"]
    assert after["client.crt"] != before["client.crt"]


async def test_a_directory_that_was_changed_meanwhile_is_not_written_over(tmp_path):
    directory = CertificateDirectory(tmp_path)
    assert directory.put(CLIENT, {"tls.crt": b"1", "tls.key": b"2"}, None)
    held = directory.get(CLIENT)
    (tmp_path / "client.crt").write_bytes(b"3")
    assert not directory.put(CLIENT, {"tls.crt": b"4", "tls.key": b"5"}, held.version)
    assert (tmp_path / "client.crt").read_bytes() == b"3"


@pytest.mark.parametrize("at", range(8))
async def test_cancelled_at_any_await_a_sync_leaves_what_the_next_one_mends(store, clock, at):
    scope = trio.CancelScope()
    calls = 0
    get = store.get

    async def count(name: CertificateObject):
        nonlocal calls
        calls += 1
        if calls == at // 2 + 1:
            scope.cancel()
        return await get(name) if at % 2 else store.objects.get(name)

    store.get = count
    with scope:
        await make(store, clock).sync()
    store.get = get
    authority = make(store, clock)
    await authority.sync()
    assert shakes_hands(authority, store)
