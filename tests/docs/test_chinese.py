"""The Chinese pages keep step with the English ones: the same sections, commands and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.markdown import ROOT

PAGES = {
    "README.zh-CN.md": "README.md",
    "docs/zh/start.md": "docs/start.md",
    "docs/zh/ms-swift.md": "docs/frameworks/ms-swift.md",
    "docs/zh/faq.md": "docs/faq.md",
    "docs/zh/notifications.md": "docs/notifications.md",
}
SELECTED = {
    "通知": "Notifications",
    "飞书、钉钉、企业微信": "Feishu, Lark, DingTalk, WeCom",
    "Discord、Teams、邮件等": "Discord, Teams, email and others",
    "Alertmanager": "Alertmanager",
    "Slack": "Slack",
}
"""The sections of ``docs/zh/notifications.md``, which links to the English page for the others."""
LINKED = frozenset({"Keys"})
"""Sections of which the Chinese page shows nothing but a link to the English one."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([^`]+)`")
OTHER_SCRIPT = re.compile(r"[一-鿿]")


class Section(NamedTuple):
    level: int
    heading: str
    blocks: list[str]
    names: set[str]
    """What stands in backticks in its text: keys, options, metrics, values."""


def sections(page: str) -> Iterator[Section]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = FENCE.findall(text)
    parts = re.split(r"^(#+) (.*)$", FENCE.sub("```", text), flags=re.MULTILINE)
    for marks, heading, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        own = [blocks.pop(0) for _ in range(body.count("```"))]
        names = {" ".join(name.split()) for name in NAME.findall(body.replace("```", ""))}
        yield Section(len(marks), heading, own, names)


@pytest.mark.parametrize(("chinese", "english"), PAGES.items(), ids=lambda page: page)
def test_each_section_has_the_commands_settings_and_names_of_the_english_one(chinese: str, english: str) -> None:
    found, wanted = list(sections(chinese)), list(sections(english))
    if chinese == "docs/zh/notifications.md":
        assert [section.heading for section in found] == list(SELECTED)
        by_heading = {section.heading: section for section in wanted}
        wanted = [by_heading[heading] for heading in SELECTED.values()]
    assert [section.level for section in found] == [section.level for section in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.blocks == theirs.blocks, ours.heading
        assert theirs.heading in LINKED or theirs.names - ours.names == set(), ours.heading


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
