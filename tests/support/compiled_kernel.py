"""Whether the compiled form of the kernel is there, and what it means when it is not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import pytest

__all__ = ["require_compiled_kernel"]


def require_compiled_kernel() -> None:
    """Skip without the compiled form; where it could have been built, fail."""
    if importlib.util.find_spec("flowjoin._kernel._compiled") is not None:
        return
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    has_headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    if shutil.which(compiler) is not None and has_headers:
        pytest.fail(
            f"{compiler} and Python's headers are here, and the compiled kernel was not built: pip install ./core"
        )
    pytest.skip("the compiled kernel was not built: no C compiler, or no Python headers")
