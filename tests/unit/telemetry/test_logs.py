from __future__ import annotations

import io
import json

import pytest

from flowjoin._telemetry.logs import LogFormat, Logs, redacted


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Hidden:
    def __repr__(self) -> str:
        return "***"


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def json_logs(clock: Clock | None = None, **options: object) -> tuple[Logs, io.StringIO]:
    stream = io.StringIO()
    return Logs(
        stream, log_format="json", clock=clock or Clock(), wall_clock=lambda: 1_700_000_000.25, **options
    ), stream


def test_a_line_is_json_with_time_level_event_and_facts() -> None:
    logs, stream = json_logs()

    logs.logger(name="audit").warning("set_dropped", reason="set_too_long", template_id=256)

    assert lines(stream) == [
        {
            "time": "2023-11-14T22:13:20.250Z",
            "level": "warning",
            "event": "set_dropped",
            "name": "audit",
            "reason": "set_too_long",
            "template_id": 256,
        }
    ]


def test_a_statement_is_written_whatever_the_level_and_however_often() -> None:
    logs, stream = json_logs(level="error")

    for _ in range(2):
        logs.statement("books", {"rows": 3, "password": "hunter2"})

    line = {"time": "2023-11-14T22:13:20.250Z", "level": "info", "event": "books", "rows": 3, "password": "***"}
    assert lines(stream) == [line, line]


def test_what_repeats_is_written_once_per_ten_seconds_with_the_number_left_out() -> None:
    clock = Clock()
    logs, stream = json_logs(clock)
    log = logs.logger()

    for _ in range(1000):
        log.warning("set_dropped", original_exporter="192.0.2.1")
    log.warning("set_dropped", original_exporter="192.0.2.2")
    clock.now = 10.0
    log.warning("set_dropped", original_exporter="192.0.2.1")

    assert [(line["original_exporter"], line.get("suppressed")) for line in lines(stream)] == [
        ("192.0.2.1", None),
        ("192.0.2.2", None),
        ("192.0.2.1", 999),
    ]


def test_two_instances_do_not_silence_one_another() -> None:
    logs, stream = json_logs()

    logs.logger(name="one").info("exporter_opened")
    logs.logger(name="two").info("exporter_opened")

    assert [line["name"] for line in lines(stream)] == ["one", "two"]


def test_the_end_of_a_burst_is_reported() -> None:
    clock = Clock()
    logs, stream = json_logs(clock)
    for _ in range(3):
        logs.logger(name="audit").warning("rows_dropped")

    logs.report_suppressed()
    assert len(lines(stream)) == 1
    clock.now = 10.0
    logs.report_suppressed()

    told = lines(stream)[-1]
    assert (told["event"], told["of"], told["name"], told["lines"]) == ("lines_suppressed", "rows_dropped", "audit", 2)


def test_lines_below_the_level_are_neither_written_nor_counted() -> None:
    logs, stream = json_logs(level="warning")
    log = logs.logger()
    log.info("quiet")
    log.info("quiet")
    logs.level = "info"
    log.info("quiet")

    (line,) = lines(stream)
    assert "suppressed" not in line
    logs.report_suppressed(everything=True)
    assert len(lines(stream)) == 1


def test_no_secret_is_written() -> None:
    logs, stream = json_logs()

    try:
        raise ValueError("cannot reach https://user:hunter2@example.org/x")
    except ValueError as exc:
        logs.logger().error(
            "connection_failed",
            exc_info=True,
            password="hunter2",
            auth_token="hunter2",
            key=Hidden(),
            url="clickhouse://admin:hunter2@db:9000/x",
            cause=exc,
        )

    text = stream.getvalue()
    assert "hunter2" not in text
    assert "clickhouse://***@db:9000/x" in text
    assert "Traceback" in text


def test_what_a_peer_sent_cannot_write_a_line_of_its_own() -> None:
    stream = io.StringIO()
    logs = Logs(stream, wall_clock=lambda: 0.0)

    logs.logger().info("seen", interface="eth0\n1970 error forged", plain="eth0", empty="", esc="\x1b[2J", number=5)

    (line,) = stream.getvalue().splitlines()
    assert line == (
        "1970-01-01T00:00:00.000Z info    seen interface='eth0\\n1970 error forged' plain=eth0 empty='' "
        "esc='\\x1b[2J' number=5"
    )


def test_a_traceback_is_indented_below_its_line_on_a_console() -> None:
    stream = io.StringIO()
    try:
        raise ValueError("bad\x1b[2J")
    except ValueError:
        Logs(stream).logger().error("failed", exc_info=True)

    first, *rest = stream.getvalue().splitlines()
    assert "failed" in first
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in stream.getvalue()


def test_a_stream_that_is_gone_costs_the_line_and_counts_it() -> None:
    stream = io.StringIO()
    logs = Logs(stream)
    stream.close()

    logs.logger().info("started")

    assert logs.lost == 1


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def itself() -> list[object]:
    endless: list[object] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), itself(), {(1, 2): 3}, SilentError(), [SilentError()], {"a": object()}, b"\xff"],
)
def test_whatever_a_plugin_logs_is_one_line_and_valid_json(log_format: LogFormat, value: object) -> None:
    stream = io.StringIO()
    Logs(stream, log_format=log_format).logger(name="x").info("event", value=value)
    (line,) = stream.getvalue().splitlines()
    assert "event" in line
    if log_format == "json":
        assert json.loads(line, parse_constant=pytest.fail)["event"] == "event"


def test_loggers_handed_out_follow_a_change_of_level_and_form() -> None:
    stream = io.StringIO()
    logs = Logs(stream, log_format="console", level="warning")
    logger = logs.logger(component="core").bind(name="one")
    logger.info("unheard")
    logs.change("info", "json")
    logger.info("heard")

    assert json.loads(stream.getvalue())["event"] == "heard"


def test_an_answer_to_an_operator_is_never_suppressed() -> None:
    stream = io.StringIO()
    logger = Logs(stream, clock=lambda: 0.0).logger(is_answer=True)
    for _ in range(3):
        logger.info("configuration_unchanged")

    assert stream.getvalue().count("configuration_unchanged") == 3
    assert "is_answer" not in stream.getvalue()


def test_the_passwords_of_urls_in_a_text_of_others_are_hidden() -> None:
    said = redacted("ConnectionError: https://ada:geheim@example.org:8123/x refused, so did tcp://example.org")
    assert "geheim" not in said
    assert "example.org:8123/x refused, so did tcp://example.org" in said
