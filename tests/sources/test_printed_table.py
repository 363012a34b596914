"""What a table that TRL printed to the console is handed on as."""

from __future__ import annotations

from grpo_watch.engine.records import Stream
from grpo_watch.sources.base import KeptTexts, SourceStats
from grpo_watch.sources.completions.completion_table import PrintedTables

PANEL = """\
╭──────── Step 3 ────────╮
│ ┏━━━━━━━━┳━━━━━━━━━━━━┓ │
│ ┃ Prompt ┃ Completion ┃ │
│ ┡━━━━━━━━╇━━━━━━━━━━━━┩ │
│ │ 1+1?   │ two        │ │
│ ├────────┼────────────┤ │
│ │ 2+2?   │ four       │ │
│ ├────────┼────────────┤ │
│ │ 1+1?   │ 2          │ │
│ └────────┴────────────┘ │
╰─────────────────────────╯
"""


def test_rows_of_one_prompt_are_a_group() -> None:
    tables, lines = PrintedTables("log", 0, {}, examples=KeptTexts.EXCERPT), PANEL.encode().splitlines()
    (found,) = [made for line in lines if (made := tables.read(line, SourceStats(), None)) is not None]
    assert (found.step, found.stream, found.by_prompt) == (3, Stream.TRAIN, True)
    assert [group.size for group in found.groups] == [2]
