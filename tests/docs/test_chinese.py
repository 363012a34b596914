"""The Chinese pages keep step with the English ones: the same sections, commands and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown import ROOT

PAGES = {
    "README.zh-CN.md": "README.md",
    "docs/zh/start.md": "docs/start.md",
    "docs/zh/ms-swift.md": "docs/frameworks/ms-swift.md",
    "docs/zh/faq.md": "docs/faq.md",
    "docs/zh/notifications.md": "docs/notifications.md",
}
SELECTED = frozenset({"docs/zh/notifications.md"})
"""Pages that show a part of the English page and link to it for the rest."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
OTHER_SCRIPT = re.compile(r"[一-鿿]")


def blocks(page: str) -> list[str]:
    """The code blocks of a page."""
    return FENCE.findall((ROOT / page).read_text(encoding="utf-8"))


def outline(page: str) -> list[int]:
    """The levels of its headings."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


@pytest.mark.parametrize(("chinese", "english"), PAGES.items(), ids=lambda page: page)
def test_commands_and_settings_are_those_of_the_english_page(chinese: str, english: str) -> None:
    wanted = blocks(english)
    if chinese in SELECTED:
        assert [block for block in blocks(chinese) if block not in wanted] == []
    else:
        assert blocks(chinese) == wanted
        assert outline(chinese) == outline(english)


def links(page: str) -> Iterator[str]:
    yield from re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("chinese", "english"), PAGES.items(), ids=lambda page: page)
def test_each_page_names_the_other(chinese: str, english: str) -> None:
    for page, other in ((chinese, english), (english, chinese)):
        folder = (ROOT / page).parent
        assert (ROOT / other).resolve() in {(folder / link).resolve() for link in links(page)}, page


def test_every_chinese_page_is_listed() -> None:
    found = {
        path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.zh-CN.md"), *Path(ROOT / "docs/zh").glob("*.md")]
    }
    assert found == set(PAGES)
    assert all(OTHER_SCRIPT.search((ROOT / page).read_text(encoding="utf-8")) for page in PAGES)
