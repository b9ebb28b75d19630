"""Plugins that are installed for one test: a module and its dist-info in a folder of their own on the path."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

InstallPlugin = Callable[..., Path]


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugin]:
    before = set(sys.modules)
    count = 0

    def install(
        name: str,
        source: str | None,
        *,
        distribution: str | None = None,
        version: str = "1.2.3",
        module: str | None = None,
        entry_points: dict[str, str] | None = None,
    ) -> Path:
        nonlocal count
        count += 1
        distribution = distribution or f"flowjoin-{name}"
        module = module or f"planted_{name}_{count}"
        folder = tmp_path / f"site-{count}"
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = [f"{key} = {value}" for key, value in (entry_points or {name: module}).items()]
        (info / "entry_points.txt").write_text("[flowjoin.plugins]\n" + "\n".join(lines) + "\n")
        if source is not None:
            (folder / f"{module}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(folder)
        importlib.invalidate_caches()
        return folder

    yield install
    for name in set(sys.modules) - before:
        if name.startswith("planted_"):
            del sys.modules[name]
