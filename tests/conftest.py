"""What all tests share: where real programs are, and the kernel's forms."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled_kernel import require_compiled_kernel

# A shell ignores SIGINT for what it runs in the background, and so would every program that the tests start and
# interrupt; a handler of ours is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).parents[1]


def _installed_by_setup() -> set[str]:
    """The programs that .ci/setup says are there."""
    listing = Path(os.environ.get("FLOWJOIN_INSTALLED", REPOSITORY / ".ci" / "installed"))
    return set(listing.read_text(encoding="utf-8").split()) if listing.exists() else set()


@pytest.fixture(params=["python", "compiled"])
def kernel_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test with either form of the kernel."""
    form: str = request.param
    if form == "compiled":
        require_compiled_kernel()
    monkeypatch.setenv("FLOWJOIN_KERNEL", form)
    return form


@pytest.fixture(scope="session")
def require_program() -> Callable[[str], str]:
    """Gives a function from a program's name to its path.

    Without the program the test is skipped and says why; with FLOWJOIN_REQUIRE_REAL=1 a program that
    .ci/setup has installed must be there.
    """

    def require(name: str) -> str:
        # Daemons lie where a user's PATH does not lead.
        found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
        if found is not None:
            return found
        if os.environ.get("FLOWJOIN_REQUIRE_REAL") == "1" and name in _installed_by_setup():
            pytest.fail(f".ci/setup installed {name}, and it is not there")
        pytest.skip(f"{name} is not installed; .ci/setup tries to")

    return require
