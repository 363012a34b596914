"""Finds the rows in a decoded document of any layout: by row, by metric, by step or one number at a time.

Pure and independent of the writer: a list of mappings, an array for each metric, a mapping for each step, columns
beside their data, the traces of a chart, or one mapping for each number (step, name, value).
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from grpo_watch import lazy_re as re
from grpo_watch.frameworks import row_numbers
from grpo_watch.frameworks.guessing import OF_LEARNING, guess, names_training

STEP_NAMES = (
    *("step", "global_step", "training_step", "training_iteration", "train_step", "optimizer_step", "update_step"),
    *("steps", "iteration", "iter", "update", "step_num"),
)
STEP_ENDINGS = ("/global_step", "/step", "/iteration", "/step_num", "_step/value")
"""wandb's ``_step`` counts calls of its logger, and comes after them."""
COARSE_STEPS = ("epoch_step", "episode", "rollout", "round", "batch", "batch_idx", "idx", "index", "i")
"""Counters used as the step if there is no step counter."""
LEAST_ROWS = 2
STEP_NAME = re.compile(r"^(?:(?:global_?|train(?:ing)?_?)?step|iter|iteration|epoch|batch|update)[ _-]?", re.IGNORECASE)
"""Prefixes of the number in a key that is a step."""
EVALUATION = re.compile(r"(?:^|[^a-z])(?:eval|val|test|dev|evaluation|validation)(?![a-z])", re.IGNORECASE)
"""Names of parts that hold no training rows."""
MOST_RUNS = 64
MARK = "#"
"""Separates the file from the run's name in a channel's name."""
RUN_NAMES = ("name", "run_name", "tag", "run", "run_id", "experiment", "id")
RUN_COLUMNS = frozenset(
    {"arm", "run", "run_id", "run_name", "runid", "experiment", "exp", "exp_name", "variant", "method"}
    | {"setting", "seed", "trial", "condition", "algo", "algorithm", "agent", "agent_id", "agent_name"}
)
"""Columns that name the runs of one log, or agents trained side by side."""
TABLE_COLUMNS = RUN_COLUMNS | {"config", "group", "model", "name"}
"""Columns that name runs in tables; in logs the added ones name parts of a run: a data set, a group, a network."""
NAMES_RUN = re.compile(rb'"\s{0,3}(?:' + "|".join(sorted(RUN_COLUMNS)).encode() + rb')\s{0,3}"\s{0,3}:', re.IGNORECASE)
PARTS_OF_RUN = re.compile(r"actor|critic|train(?:ing)?|holdout|held[ _-]?out|rollout|update", re.IGNORECASE)
"""Values that name a part of a run, in addition to evaluations."""
FEWEST_ROWS = 5
"""Fewest rows of a run beside others in a log; fewer may be an attempt that failed at once."""
NEAR = 10
"""Runs side by side start within this part of the steps of the first, unless they are written in turns."""
METRIC_NAMES = (
    *("name", "metric", "key", "tag", "variable", "metric_name", "metric.name", "metricName"),
    *("series", "field", "label"),
)
NUMBERS = ("value", "val", "metric_value", "metricValue", "scalar", "y")
"""Keys of the number if each has a mapping of its own."""
TYPED = {"f8": "d", "f4": "f", "i4": "i", "u4": "I", "i2": "h", "u2": "H", "i1": "b", "u1": "B"}
"""Array types of plotly's base64 data, and Python's type codes for them."""
STEPS, VALUES = ("x", "steps", "step", "iters", "iterations", "labels"), ("y", "values", "value", "data")
"""Keys of the two arrays of a line in a chart."""
PAIR, TRIPLE = 2, 3
Rows: TypeAlias = "list[Mapping[str, object]]"
DEPTH = 3
"""Levels below the top in which rows may lie (``{"history": {"reward": [...]}}``)."""


def step_key(keys: Iterable[str]) -> str | None:
    """Return the key of a row's step: a usual name, else the most similar one; None if there is none."""
    names = list(keys)
    plain = next((name for name in row_numbers.STEPS if name in names), None)
    if plain is not None:
        return plain
    spelled = {name.strip().lower().replace(" ", "_"): name for name in reversed(names)}
    if "episode" in spelled:  # the length of an episode
        spelled.pop("steps", None)
    exact = next((spelled[name] for name in STEP_NAMES if name in spelled), None)
    ending = (name for ending in STEP_ENDINGS for name in names if name.lower().endswith(ending))
    last = (spelled[name] for name in COARSE_STEPS if name in spelled)
    return exact or next(ending, None) or spelled.get("_step") or next(last, None)


def parts_of(document: object) -> dict[str, Rows]:
    """Return the rows of each part that has some, by its key; by its whole path if two keys are equal."""
    found = list(_parts(document, (), DEPTH))
    keys = [path[-1:] for path, _ in found]
    distinct = len(set(keys)) == len(keys)
    return {"/".join(key if distinct else path): rows for key, (path, rows) in zip(keys, found, strict=True)}


def runs_of(parts: Mapping[str, Rows]) -> tuple[str, ...]:
    """Return the names of the runs in a document with the same metrics for each; empty if it holds only one run."""
    runs = {name: rows for name, rows in parts.items() if shows_reward(rows) and not EVALUATION.search(name)}
    same = len({frozenset(rows[0]) for rows in runs.values()}) == 1
    return tuple(runs) if same and 1 < len(runs) <= MOST_RUNS else ()


class NamedRuns(NamedTuple):
    """Columns that together name the runs of some rows, and the rows of each run; empty for a single run."""

    columns: tuple[str, ...]
    rows: Mapping[str, Rows]


def run_named(row: Mapping[str, object], columns: Sequence[str]) -> str | None:
    """Return the name of the row's run; None if a column is missing or empty, so that the row belongs to no run."""
    names = [_label(row.get(column)) for column in columns]
    return "/".join(names) if all(names) else None


def _label(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas writes the seeds of a column with gaps as floats
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def by_run(rows: Sequence[Mapping[str, object]], *, table: bool = False) -> NamedRuns:
    """Split rows into the parallel runs that columns name.

    Of several naming columns, the first ones that separate most rows of a step count. Names that follow each other,
    overlapping at most where one ends, are attempts of one run. In a ``table``, more columns name runs, and a run may
    have any number of rows.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    step = step_key(keys) or ""
    at = [row for row in rows if is_number(row.get(step))]
    allowed = TABLE_COLUMNS if table else RUN_COLUMNS
    columns = [key for key in keys if key.strip().lower() in allowed and _tells_runs([row.get(key) for row in at])]
    named = [[(run_named(row, columns[:count]), str(row[step])) for row in at] for count in range(len(columns) + 1)]
    apart = [len({one for one in pairs if one[0] is not None}) for pairs in named]
    chosen = tuple(columns[: apart.index(max(apart))])
    found: dict[str, Rows] = {}
    for row in rows if chosen else ():
        if (run := run_named(row, chosen)) is not None:
            found.setdefault(run, []).append(row)
    order = [run for run, _ in named[len(chosen)] if run is not None]
    beside = _beside(found, order, step, 1 if table else FEWEST_ROWS)
    several = len(beside) > 1 and len(found) <= min(MOST_RUNS, 2 * len(beside))
    kept = {run: own for run, own in found.items() if table or len(own) >= FEWEST_ROWS}
    return NamedRuns(chosen, kept) if several else NamedRuns((), {})


def _tells_runs(values: Sequence[object]) -> bool:
    """Whether most of a column's values are names, with two at least, and no name is a part of a run."""
    labels = list(filter(None, map(_label, values)))
    names = set(labels)
    of_part = any(EVALUATION.search(name) or PARTS_OF_RUN.fullmatch(name) for name in names)
    return 2 * len(labels) >= len(values) and len(names) > 1 and not of_part


def _beside(found: Mapping[str, Rows], order: Sequence[str], step: str, fewest: int) -> list[str]:
    """Return runs that start with the first one, or are written in turns with others, over steps that others have."""
    steps = {run: {float(str(row[step])) for row in rows if is_number(row.get(step))} for run, rows in found.items()}
    steps = {run: own for run, own in steps.items() if own}
    if not steps:
        return []
    shared, blocks = Counter(at for own in steps.values() for at in own), Counter(run for run, _ in groupby(order))
    longest = max(steps, key=lambda run: len(steps[run]))
    first = min(steps.values(), key=min)
    latest = min(first) + (max(first) - min(first)) / NEAR

    def is_beside(run: str) -> bool:
        own = steps[run]
        near = min(own) <= latest or 2 * blocks[run] >= len(found[run])
        overlap = sum(shared[at] > 1 for at in own)
        return near and len(found[run]) >= fewest and (run == longest or 2 * overlap >= len(own))

    return [run for run in steps if is_beside(run)]


def shows_reward(rows: Rows) -> bool:
    """Whether there are several rows with a reward, or with two metrics that only RL training has."""
    keys = {key for row in rows[: LEAST_ROWS + 1] for key, value in row.items() if is_number(value)}
    rewarded = any(guess(key) == "reward_mean" for key in keys)
    return len(rows) > LEAST_ROWS and (rewarded or len(names_training(keys) & OF_LEARNING) > 1)


def joined(pieces: Rows) -> Rows:
    """Join the rows of each step, in the order of steps; the newest value of a key counts."""
    found: dict[int, dict[str, object]] = {}
    for piece in pieces:
        if (step := row_numbers.whole(piece.get("step"))) is not None:
            found.setdefault(step, {}).update(piece)
    return [found[step] for step in sorted(found)]


def is_number(value: object) -> bool:
    """Whether the value is a number, or a numeric text."""
    if isinstance(value, str):
        return len(value) <= row_numbers.LONGEST_NUMBER and row_numbers.number(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _parts(part: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Rows]]:
    if isinstance(part, list) and depth:
        runs = list(_listed(part, path))
        if runs:
            yield from runs
            return
    rows = _rows(part)
    named = by_run(rows).rows
    if named:
        yield from (((*path, name), found) for name, found in named.items())
    elif rows:
        yield path, rows
    elif isinstance(part, dict) and depth:
        for key, value in part.items():
            yield from _parts(value, (*path, str(key)), depth - 1)


def _listed(part: Sequence[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Yield the runs of a list whose items each hold a list of rows with a step and a reward."""
    for number, item in enumerate(part, 1):
        inner = item.values() if isinstance(item, dict) else ()
        rows = next((rows for value in inner if isinstance(value, list) and _of_steps(rows := _rows(value))), None)
        if rows is not None:
            name = next((str(item[key]) for key in RUN_NAMES if item.get(key)), str(number))
            yield (*path, name), rows


def _of_steps(rows: Rows) -> bool:
    steps = [row.get("step") for row in rows]
    return shows_reward(rows) and None not in steps and len(set(steps)) == len(steps)


def _rows(part: Any) -> Rows:
    if isinstance(part, list):
        singles = [single_number(one) if isinstance(one, dict) else None for one in part]
        one_by_one = [row for row in singles if row is not None and None not in singles[:LEAST_ROWS]]
        return _traces(part) or joined(one_by_one) or _by_row(part)
    if not isinstance(part, dict):
        return []
    return _beside_columns(part) or _labelled(part) or _by_metric(part) or _by_index(part) or _numbered(part) or []


def _by_row(part: Sequence[Any]) -> Rows:
    rows = [row_numbers.flat(row) for row in part if isinstance(row, dict)]
    rows = [row for row in rows if any(map(is_number, row.values()))]
    return list(map(_stepped, rows if 2 * len(rows) > len(part) else []))


def _by_metric(part: Mapping[str, Any]) -> Rows:
    """Return the rows of arrays by metric, or of lists of step-value mappings by metric."""
    points = {key: found for key, value in part.items() if (found := _points(value))}
    if points and len(points) == sum(isinstance(value, (list, dict)) for value in part.values()):
        return joined([{"step": step, key: value} for key, found in points.items() for step, value in found])
    columns = {key: value for key, value in part.items() if isinstance(value, list) and _all_numbers(value)}
    lengths = [len(value) for value in columns.values()]
    if not lengths or (longest := max(set(lengths), key=lengths.count)) <= LEAST_ROWS:
        return []
    whole = {str(key): value for key, value in columns.items() if len(value) == longest}
    return [_stepped({key: value[at] for key, value in whole.items()}) for at in range(longest)]


def _points(values: Any) -> list[tuple[object, object]]:
    """Return pairs from ``[{"step": 1, "value": 0.5}, …]``, ``[[1, 0.5], …]`` or two arrays; else empty."""
    if isinstance(values, dict):
        steps, shown = _curve(values)
        return list(zip(steps, shown, strict=True))
    found: list[tuple[object, object]] = []
    for one in values if isinstance(values, list) else ():
        if isinstance(one, list) and len(one) == PAIR and all(map(is_number, one)) and isinstance(one[0], int):
            found.append((one[0], one[1]))
            continue
        if isinstance(one, dict) and _name(one) is not None:
            return []
        value = next((one[key] for key in NUMBERS if key in one), None) if isinstance(one, dict) else None
        step = step_key(map(str, one)) if value is not None else None
        if step is None or not is_number(value):
            return []
        found.append((one[step], value))
    return found


def _by_index(part: Mapping[str, Any]) -> Rows:
    """Return the rows of a mapping per metric from row number to value, as pandas writes frames."""
    columns = {key: value for key, value in part.items() if isinstance(value, dict) and len(value) > LEAST_ROWS}
    if not columns or len(columns) < len(part) or any(_named_step(key) is not None for key in columns):
        return []
    first = next(iter(columns.values()))
    if any(_named_step(index) is None for index in first) or not all(
        _all_numbers([*each.values()]) for each in columns.values()
    ):
        return []
    rows = [{str(key): value.get(index) for key, value in columns.items()} for index in first]
    unnumbered = step_key(map(str, columns)) is None
    return [_stepped({**row, "step": _named_step(at)} if unnumbered else row) for at, row in zip(first, rows)]  # noqa: B905 (as many)


def _beside_columns(part: Mapping[str, Any]) -> Rows:
    """Return the rows of ``{"columns": ["step", "reward"], "data": [[1, 0.5], …]}``."""
    columns = part.get("columns")
    data = next((part[key] for key in ("data", "rows", "values") if isinstance(part.get(key), list)), None)
    if data is None or not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        return []
    cells = [row for row in data if isinstance(row, list) and len(row) == len(columns)]
    return [_stepped(dict(zip(columns, row, strict=True))) for row in cells] if len(cells) == len(data) else []


def _traces(part: Sequence[Any]) -> Rows:
    """Return the rows of a chart's lines, each with a name and steps (``x``) and values (``y``), or pairs of both."""
    found: Rows = []
    for trace in part:
        name = _name(trace) if isinstance(trace, dict) else None
        steps, values = _curve(trace) if name is not None else ((), ())
        if name is not None and not steps and (points := _points(trace.get("data"))):
            steps, values = zip(*points, strict=True)
        if not steps:
            return []
        found += [{"step": step, str(name): value} for step, value in zip(steps, values, strict=True)]
    return joined(found)


def _labelled(part: Mapping[str, Any]) -> Rows:
    """Return the rows of chart lines with common steps: ``{"labels": [1, 2], "datasets": [{"label": …}]}``."""
    shared = {key: part[key] for key in STEPS if isinstance(part.get(key), list)}
    lines = next((v for v in part.values() if isinstance(v, list) and all(isinstance(one, dict) for one in v)), None)
    return _traces([{**shared, **line} for line in lines]) if shared and lines else []


def _name(part: Mapping[str, Any]) -> str | None:
    return next((part[key] for key in METRIC_NAMES if isinstance(part.get(key), str)), None)


def _curve(part: Mapping[str, Any]) -> tuple[Sequence[object], Sequence[object]]:
    """Return the steps and values of a chart's line; empty if their numbers differ."""
    steps, values = (next((found for key in keys if (found := _array(part.get(key)))), ()) for keys in (STEPS, VALUES))
    return (steps, values) if len(steps) == len(values) else ((), ())


def _array(value: Any) -> Sequence[object]:
    if isinstance(value, list):
        return value
    kind = TYPED.get(str(value.get("dtype"))) if isinstance(value, dict) else None
    if kind is None:
        return ()
    try:
        return array(kind, b64decode(str(value.get("bdata")))).tolist()
    except (NotBase64, ValueError):
        return ()


def single_number(row: Mapping[str, Any]) -> Mapping[str, object] | None:
    """Return the row of a mapping with one number, its name and its step; None for any other."""
    name, row = _name(row), row_numbers.flat(row)
    value = next((key for key in NUMBERS if is_number(row.get(key))), None)
    step = step_key(key for key in map(str, row) if key != value and row[key] != name)
    return None if name is None or value is None or step is None else {"step": row[step], name: row[value]}


def triples(part: object, name: str) -> Rows:
    """Return the rows of ``[[time, step, value], …]``, TensorBoard's JSON of a chart; empty for other lists."""
    if not isinstance(part, list) or not all(isinstance(one, list) and len(one) == TRIPLE for one in part):
        return []
    whole = all(all(map(is_number, one)) and row_numbers.whole(one[1]) is not None for one in part)
    return [{"step": step, name: value} for _, step, value in part] if whole else []


def _numbered(part: Mapping[str, Any]) -> list[Mapping[str, object]] | None:
    """Return the rows of ``{"10": {"reward": 0.5}, "20": {…}}`` by step; None for other mappings."""
    steps = {_named_step(key): value for key, value in part.items() if isinstance(value, dict)}
    if len(steps) <= LEAST_ROWS or len(steps) < len(part) or None in steps:
        return None
    rows = {step: row_numbers.flat(value) for step, value in steps.items() if step is not None}
    return [{**rows[step], "step": step} for step in sorted(rows)]


def _named_step(key: object) -> int | None:
    return row_numbers.whole(STEP_NAME.sub("", str(key)))


def _stepped(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return the row with its step under the usual key."""
    key = step_key(map(str, row))
    return row if key is None else {**{name: value for name, value in row.items() if name != key}, "step": row[key]}


def _all_numbers(values: Sequence[object]) -> bool:
    return all(value is None or is_number(value) for value in values)
