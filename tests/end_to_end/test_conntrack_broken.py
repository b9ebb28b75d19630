"""What a real kernel refuses, and a namespace that goes away, are said and survived by the conntrack source."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from network_namespace import ASKED, GROUP, Inside, network_namespace

RULES = "table inet t { chain in { type filter hook input priority 0; ct state new counter; }; }"
HOLDER = ASKED + "print('held', flush=True); input()"
EVERYWHERE = f"""
import pathlib, sys, trio
from flowjoin.api import Duration
from flowjoin.testing import RecordingContext
from flowjoin.testing.requirements import cancelled_everywhere
from flowjoin_conntrack import ConntrackConfig
from flowjoin_conntrack._config import DeniedConfig
from flowjoin_conntrack._open import open_conntrack
config = ConntrackConfig(events=True, zones=(65520,), from_external=True, denied=DeniedConfig(group={GROUP}))
lives = 0
async def whole_life():
    global lives
    lives += 1
    context = RecordingContext(state_directory=pathlib.Path(sys.argv[1]))
    async with open_conntrack(config, context) as batches:
        with trio.move_on_after(0.02):
            await anext(batches)
        batches.finish()
        async for _ in batches:
            pass
        await batches.aclose()
trio.run(cancelled_everywhere, whole_life)
print(lives)
"""


@pytest.fixture
def inside(require_program: Callable[[str], str]) -> Iterator[Inside]:
    with network_namespace(require_program, RULES, switched_on=False) as made:
        yield made


@pytest.fixture
def flowjoin(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """Gives a function from the source's keys to the command that runs it."""

    def command(keys: str = "") -> tuple[str, ...]:
        config = tmp_path / "flowjoin.yaml"
        config.write_text(
            f"stateDirectory: {tmp_path}/state\napiServer: {{address: none}}\n"
            f"sources: [{{type: conntrack, pollInterval: 1s{keys}}}]\n"
            f"exporters: [{{type: log, path: {tmp_path}/flows, format: jsonLines}}]\n"
        )
        return (sys.executable, "-m", "flowjoin", "run", "-c", str(config))

    return command


def ended(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["", ", events: true", f", denied: {{group: {GROUP}}}"])
def test_without_the_capability_it_does_not_start_and_says_what_is_missing(
    inside: Inside,
    flowjoin: Callable[..., tuple[str, ...]],
    require_program: Callable[[str], str],
    keys: str,
) -> None:
    unshare = require_program("unshare")
    if subprocess.run([unshare, "--user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    code, errors = ended(inside(unshare, "--user", *flowjoin(keys)))
    assert code == 2, errors
    assert "run with CAP_NET_ADMIN" in errors


@pytest.mark.slow
def test_a_group_that_another_program_has_is_named(inside: Inside, flowjoin: Callable[..., tuple[str, ...]]) -> None:
    holder = subprocess.Popen(
        inside(sys.executable, "-c", HOLDER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        code, errors = ended(inside(*flowjoin(f", denied: {{group: {GROUP}}}")))
    finally:
        holder.kill()
        holder.communicate()
    assert code == 2, errors
    assert f"log group {GROUP} cannot be had" in errors


@pytest.mark.slow
def test_parameters_that_cannot_be_set_are_named_and_the_rest_works(
    inside: Inside, flowjoin: Callable[..., tuple[str, ...]], require_program: Callable[[str], str]
) -> None:
    mount = 'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$@"'
    zero = "echo 0 > /proc/sys/net/netfilter/nf_conntrack_acct"
    if subprocess.run(inside("sh", "-c", zero), capture_output=True, check=False).returncode:
        pytest.skip("kernel parameters cannot be written here")
    command = inside(require_program("unshare"), "--mount", "sh", "-c", mount, "sh", *flowjoin())
    lines = until_opened(command, then=lambda: None)
    (warning,) = [line for line in lines if "kernel_parameters_not_set" in line]
    assert "nf_conntrack_acct" in warning


@pytest.mark.slow
def test_a_namespace_that_is_deleted_does_not_end_it(inside: Inside, flowjoin: Callable[..., tuple[str, ...]]) -> None:
    command = inside(*flowjoin(f", events: true, denied: {{group: {GROUP}}}, gatewayInterface: lo"))
    ip, name = command[0], command[3]
    until_opened(command, then=lambda: subprocess.run([ip, "netns", "del", name], check=True, capture_output=True))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_with_a_real_kernel_it_ends_wherever_it_is_cancelled(inside: Inside, tmp_path: Path) -> None:
    done = subprocess.run(
        inside(sys.executable, "-W", "error", "-c", EVERYWHERE, str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def until_opened(command: list[str], *, then: Callable[[], object]) -> list[str]:
    """Run it, do something once the source is open, end it: it must have lived until then."""
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines = []
    try:
        assert program.stderr is not None
        for line in program.stderr:
            lines.append(line)
            if '"source_opened"' in line:
                break
        assert '"source_opened"' in lines[-1], lines
        then()
        assert program.poll() is None
    finally:
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    return lines
