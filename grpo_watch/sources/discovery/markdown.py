"""Recognises Markdown documents into which somebody pasted a log."""

from __future__ import annotations

from grpo_watch.sources.console.framework_lines import framework_of
from grpo_watch.sources.own_loops.printed_columns import holds_columns
from grpo_watch.sources.own_loops.rows import holds_own_rows

ABOUT = ("readme", "model_card", "contributing", "changelog")
"""How documents begin that show examples, or sum a run up beside its log."""


def holds_log(name: str, text: bytes) -> bool:
    """Whether the document holds a table of metrics by step, or rows as a framework or an own loop prints them."""
    if holds_columns(text):
        return True
    return not name.lower().startswith(ABOUT) and (framework_of(text) is not None or holds_own_rows(text))
