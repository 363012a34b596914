"""Tells the runs apart that one table holds: by a column that names them, or by wandb's ``run - metric`` headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpo_watch.frameworks import row_numbers
from grpo_watch.sources.tables.table_rows import cells_of, delimiter_of, step_key, table_lines

NAMES = frozenset(
    {"arm", "run", "run_id", "run_name", "runid", "name", "experiment", "exp", "exp_name", "variant", "method"}
    | {"config", "setting", "seed", "model", "trial", "condition", "group"}
)
"""Columns that people name the runs of one table with."""
OF_RUN = re.compile(r"(?P<run>.+) - (?P<key>[^ ].*)")
"""A header of wandb's CSV export: the run's name and the metric."""
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns that wandb adds to each of a chart."""
MOST_ARMS = 64
LOOKED_AT = 32 << 20


@dataclass(frozen=True, slots=True)
class TableArms:
    """The runs of a table. ``column``: where their names are in each line; None: in the header."""

    names: tuple[str, ...] = ()
    column: int | None = None
    keys: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def arms_of(text: str) -> TableArms:
    """The runs in a table; no names where it holds one alone."""
    lines = table_lines(text)
    if not lines:
        return TableArms()
    delimiter = delimiter_of(lines[0])
    header = [cell.strip() for cell in cells_of(lines[0], delimiter)]
    wide = _wide(header)
    if wide is not None:
        return wide
    rows = [cells for line in lines[1:] if len(cells := cells_of(line, delimiter)) == len(header)]
    return _long(header, rows)


def arm_in_header(header: Sequence[str], arm: str) -> Mapping[int, str]:
    """The columns of one run in wandb's export, and the metric of each, with those that all runs share."""
    wide = _wide([cell.strip() for cell in header])
    return wide.keys.get(arm, {}) if wide is not None else {}


def arm_column(header: Sequence[str]) -> int | None:
    """The place of the column that names the runs."""
    return next((place for place, name in enumerate(header) if name.strip().lower() in NAMES), None)


def _wide(header: Sequence[str]) -> TableArms | None:
    found: dict[str, dict[int, str]] = {}
    shared: dict[int, str] = {}
    for place, name in enumerate(header):
        parts = OF_RUN.fullmatch(name)
        if parts is None:
            shared[place] = name
        elif not name.endswith(BOUNDS):
            found.setdefault(parts["run"], {})[place] = parts["key"]
    if not found or step_key(dict.fromkeys(shared.values())) is None:
        return None
    return TableArms(tuple(found)[:MOST_ARMS], None, {run: {**shared, **keys} for run, keys in found.items()})


def _long(header: Sequence[str], rows: Sequence[Sequence[str]]) -> TableArms:
    """A column of names counts where a step comes again under another name."""
    place, step = arm_column(header), step_key(dict.fromkeys(header))
    if place is None or step is None:
        return TableArms()
    at = header.index(step)
    names = tuple(dict.fromkeys(cells[place].strip() for cells in rows))
    pairs = {(cells[place].strip(), cells[at].strip()) for cells in rows}
    repeated = len(pairs) > len({number for _, number in pairs})
    several = (
        1 < len(names) <= MOST_ARMS and repeated and all(row_numbers.number(cells[at]) is not None for cells in rows)
    )
    return TableArms(names, place) if several else TableArms()
