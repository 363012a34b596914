"""Runbooks as the page shows them: elements, not markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from grpo_watch.rules.runbook import Node, nodes

PAGES = sorted((Path(__file__).parents[2] / "grpo_watch" / "detectors").rglob("*.md"))


def by_commonmark(text: str) -> list[Node]:
    """The same by a complete reader of the language."""
    return nested(iter(MarkdownIt("commonmark", {"html": False}).enable("table").parse(text)))


def nested(tokens: Iterator[Token]) -> list[Node]:
    found: list[Node] = []
    for token in tokens:
        if token.nesting < 0:
            break
        if token.nesting > 0:
            inner = nested(tokens)
            found += inner if token.hidden or token.tag == "a" else [[token.tag, *inner]]
        elif token.type == "inline":
            found += nested(iter(token.children or ()))
        elif token.type in {"fence", "code_inline"}:
            found.append(["pre" if token.type == "fence" else "code", token.content.rstrip("\n")])
        else:
            assert token.type in {"text", "softbreak"}, token
            found.append(" " if token.type == "softbreak" else token.content)
    return found


def joined(node: Any) -> Any:
    """The node with its texts in one piece where they touch."""
    if isinstance(node, str):
        return node
    found: list[Any] = [node[0]]
    for part in map(joined, node[1:]):
        if isinstance(part, str) and len(found) > 1 and isinstance(found[-1], str):
            found[-1] += part
        elif part:
            found.append(part)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_is_read_as_markdown_is(page: Path) -> None:
    text = "\n".join(line for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("<!--"))
    assert list(map(joined, nodes(text))) == list(map(joined, by_commonmark(text)))


@pytest.mark.parametrize(
    "text", ["| one", "```", "- ", "**", "`a", "[x](", "#5 is no title", "|a|\n|-|", "a\n| b", "<b>x</b>", "\\"]
)
def test_what_a_users_rule_says_is_shown_whatever_it_is(text: str) -> None:
    """No text of it is lost but marks."""
    shown = str(nodes(text))
    assert all(word in shown for word in text.replace("#5", "").split() if word.isalnum())
