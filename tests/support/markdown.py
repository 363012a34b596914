"""Reads Markdown as far as tests of the documentation need it: fenced blocks, links, anchors of headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
INLINE_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
FILE_NAMED_BEFORE = re.compile(r"`([\w.-]+)`[^`\n]*:\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind the fence, its text, its line, and a file that is named just before it."""

    info: str
    text: str
    line: int
    file: str | None


@dataclass(frozen=True)
class Link:
    """The target of a link, and its line."""

    target: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Fenced blocks in order."""
    for found in FENCE.finditer(text):
        named = FILE_NAMED_BEFORE.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found["info"].strip(), found["text"], line, named[1] if named else None)


def links(text: str) -> Iterator[Link]:
    """Links and images outside of code."""
    prose = INLINE_CODE.sub(_blanked, FENCE.sub(_blanked, text))
    for found in LINK.finditer(prose):
        yield Link(found[1], prose.count("\n", 0, found.start()) + 1)


def anchors(text: str) -> frozenset[str]:
    """What `#…` may name: the headings' anchors as GitHub makes them, and explicit ones."""
    seen: Counter[str] = Counter()
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in HEADING.findall(FENCE.sub(_blanked, text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(names)


def _blanked(found: re.Match[str]) -> str:
    """As many lines, without text: places stay."""
    return "\n" * found[0].count("\n")
