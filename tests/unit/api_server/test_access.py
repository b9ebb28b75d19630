from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable
from pathlib import Path

import pytest
import trio
import trio.testing
from pipeline_fakes import MemoryLog

from flowjoin._api_server.access import Access, AccessConfig
from flowjoin._api_server.process import _in_time
from flowjoin.api import Secret, User

RIGHT = "s3cret-token"


class Reviewer:
    """Knows two tokens: of one who may read everything, and of one who may read nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = None

    async def authenticate(self, token: str) -> User | None:
        await trio.lowlevel.checkpoint()
        self.asked.append(token)
        if self.failure is not None:
            raise self.failure
        return {"reader": User(name="reader"), "guest": User(name="guest")}.get(token)

    async def is_allowed(self, user: User, verb: str, path: str) -> bool:
        await trio.lowlevel.checkpoint()
        return user.name == "reader" and verb == "get" and path == "/flowrecords"


async def at_once(review: Awaitable[User | bool | None]) -> User | bool | None:
    return await review


class Guarded:
    def __init__(self, tmp_path: Path, **config: object) -> None:
        self.file = tmp_path / "token"
        self.file.write_text(f"{RIGHT}\n", encoding="utf-8")
        self.log = MemoryLog()
        self.now = 0.0
        if config.pop("has_token", False):
            config["token"] = Secret("file", str(self.file))
        self.access = Access(AccessConfig(**config), self.log, clock=lambda: self.now, bound=at_once)  # type: ignore[arg-type]

    async def status(
        self, *tokens: str, path: str = "/flowrecords", identity: str | None = None, scheme: str = "Bearer"
    ) -> int:
        headers = [(b"Authorization", f"{scheme} {token}".encode()) for token in tokens]
        refusal = await self.access.refusal("GET", path, headers, peer="192.0.2.9", identity=identity)
        if refusal is None:
            return 200
        assert refusal.content_type == "application/json"
        body = json.loads(refusal.body)
        assert (body["kind"], body["code"]) == ("Status", refusal.status)
        assert ("www-authenticate", "Bearer") in refusal.headers or refusal.status != 401
        return refusal.status


async def test_where_nothing_is_configured_everybody_may_read(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    assert not guarded.access.is_required
    assert await guarded.status() == 200


@pytest.mark.parametrize("path", ["/healthz", "/healthz/exporters/a", "/livez", "/readyz"])
async def test_probes_need_no_token(tmp_path: Path, path: str) -> None:
    assert await Guarded(tmp_path, has_token=True).status(path=path) == 200


@pytest.mark.parametrize(
    "path", ["/metrics", "/recordmetrics", "/flowrecords", "/", "/healthzz", "/nowhere", "//livez"]
)
async def test_everything_else_does(tmp_path: Path, path: str) -> None:
    guarded = Guarded(tmp_path, has_token=True)
    assert await guarded.status(path=path) == 401
    assert await guarded.status(RIGHT, path=path) == 200


async def test_metrics_can_be_open(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, has_token=True, is_metrics_open=True)
    assert [await guarded.status(path=path) for path in ("/metrics", "/recordmetrics")] == [200, 401]


@pytest.mark.parametrize(
    "token", ["", " ", "x", RIGHT[:-1], f"{RIGHT}x", RIGHT.upper(), f"{RIGHT} {RIGHT}", "x" * 20_000, "\xff", "none"]
)
async def test_a_wrong_token_is_401_and_never_in_the_log(tmp_path: Path, token: str) -> None:
    guarded = Guarded(tmp_path, has_token=True)
    assert await guarded.status(token) == 401
    (facts,) = guarded.log.facts("api_refused")
    assert facts["original_exporter"] == "192.0.2.9"
    assert len(token.strip()) < 2 or token not in str(facts)


async def test_only_one_bearer_token_counts(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, has_token=True)
    assert await guarded.status(RIGHT, RIGHT) == 401
    assert await guarded.status(RIGHT, scheme="Basic") == 401
    assert await guarded.status(RIGHT, scheme="bearer") == 200


async def test_tokens_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    guarded = Guarded(tmp_path, has_token=True)
    assert await guarded.status("x") == 401
    assert await guarded.status(RIGHT) == 200
    assert compared == [(32, 32)] * 2


async def test_a_rotated_token_counts_from_the_next_request_on(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, has_token=True)
    guarded.file.write_text("new", encoding="utf-8")
    assert [await guarded.status(token) for token in (RIGHT, "new")] == [401, 200]


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_a_token_file_that_is_gone_or_empty_lets_nobody_in(tmp_path: Path, content: str | None) -> None:
    guarded = Guarded(tmp_path, has_token=True)
    guarded.file.unlink() if content is None else guarded.file.write_text(content, encoding="utf-8")
    assert await guarded.status("x") == (503 if content is None else 401)
    assert guarded.log.facts("api_token_unreadable")


async def test_a_verified_certificate_is_enough_where_that_is_configured(tmp_path: Path) -> None:
    assert await Guarded(tmp_path, certificates=True).status(identity="admin") == 200
    assert await Guarded(tmp_path, certificates=True).status() == 401
    assert await Guarded(tmp_path, has_token=True).status(identity="admin") == 401


async def test_reviews_say_who_may_read_what(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, review=Reviewer())
    assert [await guarded.status(token) for token in ("reader", "guest", "nobody")] == [200, 403, 401]
    assert await guarded.status("reader", path="/recordmetrics") == 403
    assert "reader" not in str(guarded.log.facts("api_refused"))


async def test_the_configured_token_is_not_reviewed_and_others_are(tmp_path: Path) -> None:
    reviewer = Reviewer()
    guarded = Guarded(tmp_path, has_token=True, review=reviewer)
    assert [await guarded.status(token) for token in (RIGHT, "reader")] == [200, 200]
    assert reviewer.asked == ["reader"]


async def test_answers_are_remembered_for_ten_seconds_and_bounded(tmp_path: Path) -> None:
    reviewer = Reviewer()
    guarded = Guarded(tmp_path, review=reviewer)
    for _ in range(3):
        assert await guarded.status("reader") == 200
    assert len(reviewer.asked) == 1
    guarded.now = 10.0
    assert await guarded.status("reader") == 200
    assert len(reviewer.asked) == 2
    for number in range(1000):
        assert await guarded.status(f"wrong-{number}") == 401
    assert len(guarded.access._remembered) == 256


async def test_a_review_that_fails_lets_nobody_in_and_is_not_remembered(tmp_path: Path) -> None:
    reviewer = Reviewer()
    reviewer.failure = OSError("the cluster is away")
    guarded = Guarded(tmp_path, review=reviewer)
    assert await guarded.status("reader") == 503
    assert "the cluster is away" in str(guarded.log.facts("api_review_failed"))
    reviewer.failure = None
    assert await guarded.status("reader") == 200


class Hanging(Reviewer):
    """Knows whose token it is, and never says what they may."""

    async def is_allowed(self, user: User, verb: str, path: str) -> bool:
        await trio.sleep_forever()


async def test_a_review_that_hangs_is_given_up_and_lets_nobody_in(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    guarded = Guarded(tmp_path, review=Hanging())
    guarded.access._bound = _in_time
    assert await guarded.status("reader") == 503
    assert trio.current_time() == pytest.approx(10.0)
    assert "TooSlowError" in str(guarded.log.facts("api_review_failed"))


async def test_while_reviews_hang_those_beyond_a_few_are_told_to_come_again_and_others_are_answered(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    guarded = Guarded(tmp_path, has_token=True, review=Hanging())
    guarded.access._bound = _in_time
    statuses: list[int] = []

    async def ask(token: str) -> None:
        statuses.append(await guarded.status(token))

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(ask, "reader")
        await trio.testing.wait_all_tasks_blocked()
        assert await guarded.status("reader") == 503
        assert trio.current_time() == 0.0
        assert await guarded.status(RIGHT) == 200
        assert await guarded.status("reader", path="/livez") == 200
    assert statuses == [503] * 16
    guarded.access._config = AccessConfig(review=Reviewer())
    assert await guarded.status("reader") == 200


async def test_a_request_that_is_given_up_during_its_review_leaves_no_answer_behind(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    guarded = Guarded(tmp_path, review=Hanging())
    with trio.move_on_after(1) as gone:
        await guarded.status("reader")
    assert gone.cancelled_caught
    assert guarded.access._remembered == {}
    guarded.access._config = AccessConfig(review=Reviewer())
    assert await guarded.status("reader") == 200


async def test_a_token_longer_than_any_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    reviewer = Reviewer()
    guarded = Guarded(tmp_path, review=reviewer)
    assert [await guarded.status("x" * size) for size in (16 * 1024, 1024 * 1024)] == [401, 401]
    assert reviewer.asked == []
    assert len(guarded.access._remembered) == 0
