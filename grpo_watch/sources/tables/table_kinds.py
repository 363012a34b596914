"""Tells a table of training metrics from the datasets and reports that lie in run folders too."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import PurePath

from grpo_watch.frameworks.guessing import names_training, names_updates
from grpo_watch.frameworks.row_numbers import STEPS, number
from grpo_watch.sources.own_loops.html_metric_tables import TableParser
from grpo_watch.sources.tables.table_rows import cells_of, delimiter_of, keys_of, named_columns, table_lines

HEAD = 64 << 10
HTML = (".html", ".htm")
TABLES = (".csv", ".tsv", *HTML)
NOTEBOOK = re.compile(rb"<t[hd][^>]{0,80}>\s{0,20}(?:Step|step|global_step)\s{0,20}</t[hd]>")
HEADER_NEEDED = "no column of its header is known; say what they mean under runs: columns: in grpo-watch.yaml"


def holds_table(name: str, head: bytes, metrics: AbstractSet[str]) -> bool:
    """Whether a file of this name and beginning has a step and one of these metrics, or is a notebook's output."""
    if name.endswith(HTML):
        parser = TableParser(frames=True)
        parser.feed(head.decode("utf-8", "replace"))
        return bool(parser.tables) or NOTEBOOK.search(head) is not None
    lines = table_lines(head[:HEAD].decode("utf-8-sig", "replace"))
    header = lines[0].strip() if lines else ""
    cells = cells_of(header, delimiter_of(header))
    if any(number(cell.strip("[](){}' \"")) is not None for cell in cells):
        return False  # numbers by name on one line
    keys = frozenset(keys_of(named_columns(cells, PurePath(name).stem), {}))
    metric = bool(keys & metrics or names_training(part for key in keys for part in {key, key.rpartition(" - ")[2]}))
    return metric and (bool(keys & frozenset(STEPS)) or names_updates(keys))
