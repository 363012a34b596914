"""Runbooks as tests read them: their headings in the order that people learn, and their executable examples."""

from __future__ import annotations

import re

from grpo_watch.config.document import parse_document
from grpo_watch.errors import FilePlace, RuleError
from grpo_watch.rules.example_blocks import Example, example_in
from grpo_watch.rules.runbook import Runbook

HEADINGS = ("What it detects", "What to do", "When it is wrong", "How it is computed", "Parameters", "Examples")
"""The second-level headings of every runbook."""
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^```series\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def headings(runbook: Runbook) -> tuple[str, ...]:
    """The second-level headings outside code blocks."""
    return tuple(re.findall(r"^## (.*)$", _FENCED.sub("", runbook.text), re.MULTILINE))


def examples_of(runbook: Runbook) -> tuple[Example, ...]:
    """All examples of a runbook, in order.

    Raises:
        RuleError: naming file and line of a block that can't be read.
    """
    found, file = [], str(runbook.path)
    for block in _EXAMPLE.finditer(runbook.text):
        line = runbook.text.count("\n", 0, block.start(1)) + 1
        text = "\n" * (line - 1) + block[1]  # so that the places of the block are those of the runbook
        found.append(example_in(parse_document(text, file, RuleError), FilePlace(file, line)))
    return tuple(found)
