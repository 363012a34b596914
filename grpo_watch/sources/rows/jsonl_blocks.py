"""Reads lines of a JSON-lines log that have the same keys into columns, with the numbers that reading rows gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from operator import lt
from typing import Any, NamedTuple

import msgspec

from grpo_watch.engine.block import Columns
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.raw_block import HUGE, LEAST
from grpo_watch.frameworks.row_numbers import MAXIMA, NOT_METRICS, PAIRS, STEPS, TEXTS, RowStep

NOT_ROWS = frozenset({"train_runtime", "data"})
"""Keys of summaries, and of rows inside rows."""
PLAIN = frozenset({float, int, str, bool})
"""Types of values that a block may hold; what is no number among them is passed over."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class JsonColumns(NamedTuple):
    """The steps of some lines, what all of them say beside the step, and their numbers."""

    steps: Sequence[int]
    place: RowStep
    columns: Columns


def columns_of(lines: Sequence[bytes]) -> tuple[JsonColumns | None, int]:
    """The columns of the first lines of some, as many as are alike, and how many; None: they must be read one by one.

    A line that is no object, or holds NaN, is like no other.
    """
    rows = _alike(lines)
    if len(rows) >= LEAST:
        texts = dict(zip(rows[0], zip(*(row.values() for row in rows), strict=True), strict=True))
        if any(len(set(map(type, column))) > 1 for column in texts.values()):
            rows = rows[: _same_types(rows)]
            texts = {key: column[: len(rows)] for key, column in texts.items()}
    plain = len(rows) >= LEAST and NOT_ROWS.isdisjoint(rows[0]) and PLAIN.issuperset(map(type, rows[0].values()))
    return (_columns(rows, texts) if plain else None), len(rows)


def _columns(rows: Sequence[Mapping[str, Any]], texts: Mapping[str, Sequence[Any]]) -> JsonColumns | None:
    steps, columns = _steps(rows, texts), _numbers(texts)
    if steps is None or columns is None or not all(map(lt, steps, steps[1:])):
        return None
    place = row_numbers.place(rows[0])
    numbers = row_numbers.numbers(rows[-1])
    whole = row_numbers.place(rows[-1]) == place._replace(step=steps[-1]) and place.step == steps[0]
    whole = whole and list(numbers.items()) == [(key, column[-1]) for key, column in columns.items()]
    return JsonColumns(steps, place, columns) if whole and row_numbers.stream(columns) is None else None


def _alike(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The first lines as far as they are objects with the same keys in the same order."""
    rows: list[dict[str, Any]] = []
    keys: tuple[str, ...] = ()
    try:
        for line in lines:
            row = _decode(line)
            if tuple(row) != keys:
                if rows:
                    break
                keys = tuple(row)
            rows.append(row)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    return rows


def _same_types(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many of the first rows have the same types of values."""
    first = [*map(type, rows[0].values())]
    return next(index for index, row in enumerate(rows) if [*map(type, row.values())] != first)


def _steps(rows: Sequence[Mapping[str, Any]], texts: Mapping[str, Sequence[Any]]) -> Sequence[int] | None:
    """The steps by the key that names that of the first row; None where the total changes, or a step is no such."""
    first = rows[0]
    key = next((each for each in PAIRS if isinstance(first.get(each), str)), "")
    key = key or next((each for each in STEPS if each in first), "")
    column = texts.get(key, ())
    if any(len(set(texts.get(each, ()))) > 1 for each in MAXIMA):
        return None
    if key in PAIRS and column and isinstance(column[0], str):
        pairs = [text.partition("/") for text in column]
        whole = [row_numbers.whole(step) for step, _, _ in pairs]
        known = [step for step in whole if step is not None]
        return known if len(known) == len(whole) and len({total for _, _, total in pairs}) == 1 else None
    return column if column and type(column[0]) is int and min(column) >= 0 else None


def _numbers(texts: Mapping[str, Sequence[Any]]) -> Columns | None:
    """The columns that ``row_numbers.numbers`` would make of the rows; None where they would differ in their keys."""
    found = {key: column for key, column in texts.items() if type(column[0]) is float}
    for key, column in texts.items():
        if key in found or key in TEXTS or key in NOT_METRICS:
            continue
        if type(column[0]) is int:
            found[key] = [*map(float, column)] if max(column) < 1 << 53 > -min(column) else []
        elif isinstance(column[0], str):
            numbers = [row_numbers.number(text) for text in column]
            if any(number is not None for number in numbers):
                found[key] = [number for number in numbers if number is not None]
    found = {key: column for key, column in found.items() if key not in NOT_METRICS}
    if (passed := texts.get("elapsed_time")) is not None:
        known = {text: row_numbers.duration(text) for text in set(passed)}
        if any(seconds is not None for seconds in known.values()):
            found["elapsed_seconds"] = [seconds for text in passed if (seconds := known[text]) is not None]
    count = len(next(iter(texts.values())))
    sound = all(len(column) == count and hypot(*column) < HUGE for column in found.values())
    return found if found and sound else None
