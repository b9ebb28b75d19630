"""Code in documentation is code of real files, which have tests of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SNIPPET = re.compile(r"^<!-- from (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str, str]]:
    return [
        (str(page.relative_to(REPOSITORY)), source, text)
        for page in sorted((REPOSITORY / "docs").rglob("*.md"))
        for source, text in SNIPPET.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "source", "text"), snippets(), ids=lambda value: value.split("\n")[0][:60])
def test_a_snippet_is_in_the_file_it_names(page: str, source: str, text: str) -> None:
    assert text in (REPOSITORY / source).read_text(encoding="utf-8"), f"{page} shows what is not in {source}"


def test_the_guide_to_exporters_shows_the_templates_code() -> None:
    shown = [source for page, source, _ in snippets() if page.endswith("write-an-exporter.md")]
    assert shown.count("plugin-template/src/flowjoin_example/__init__.py") == 4
