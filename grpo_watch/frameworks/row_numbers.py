"""Turns a decoded log dictionary into the numbers, the step and the stream of a raw row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import Stream
from grpo_watch.frameworks.framework_tables import recognise
from grpo_watch.frameworks.guessing import guess, names_training

PAIRS = ("global_step/max_steps", "iteration")
"""Keys of ms-swift (HF backend, Megatron backend) that hold ``"33/80"``."""
EIGHT_DECIMALS = 1e-8
"""ms-swift rounds all floats to 8 decimals before it writes them (3.1 to 4.6)."""
STEPS = ("step", "global_step", "current_steps", "iteration", "train/global_step", "update_step")
MAXIMA = ("max_steps", "total_steps")
STEP_KEYS = frozenset({*PAIRS, *STEPS})
NOT_METRICS = frozenset({*PAIRS, *STEPS, *MAXIMA})
TEXTS = frozenset({*PAIRS, "elapsed_time", "remaining_time", "percentage"})
"""Keys that always hold text and are not tried as numbers."""
OWN_OF_TRAINING = frozenset({"loss", "grad_norm", "reward", "train/loss", "train/reward", "train/grad_norm"})
EVALUATION = ("eval_", "eval/", "val-core/", "val-aux/")
"""Prefixes of evaluation keys in any framework. verl's ``val/`` is not among them: elsewhere it is of training."""
DISCRIMINATORS = frozenset({"type", "phase", "split", "mode", "event", "stage", "kind"})
"""Fields in which writers name the kind of row."""
EVALUATIONS = frozenset({"eval", "evaluation", "evaluate", "val", "valid", "validation", "validate", "test", "dev"})
METRICS = OWN_OF_TRAINING | {"kl", "reward_std", "reward_mean", "learning_rate", "lr", "entropy", "completion_length"}
ALWAYS_NUMBERS = frozenset({"learning_rate", "lr", "epoch", "num_tokens", "step_time"})
"""Keys that are never NaN in training: a null is an empty cell of a table that holds rows of several kinds."""
HELD_OUT = re.compile(r"(?:eval|val|validation|test)[_/]|valid(?:/|_(?:loss|acc|accuracy|reward|score)(?![^\W_]))")
"""Prefixes of evaluation keys in tables whose training rows have the same columns; ``valid_ratio`` is of training."""
LONGEST_NUMBER = 40
WRAPPERS = frozenset({"data", "payload", "metrics", "values", "fields", "scalars", "stats", "logs", "extra", "body"})
"""Names of a mapping that holds all numbers of a row, used by writers of events."""
DEEPEST = 4
"""Depth to which nested mappings of a row are read: ``critic/score/mean`` has two."""
OWN_OF_UPDATES = frozenset({"loss", "grad_norm", "kl", "reward_std", "entropy"})
AVERAGED = re.compile(r"mean|avg|average|std")
NO_ROW_ALONE = frozenset({None, "reward_mean", "learning_rate"})
"""Metrics that alone make no row: those of a reward function for one completion, and of a printed configuration."""
FEW = 4
"""Pairs on one line that make it the rest of a row (with a reward or a loss) rather than of a printed setting."""
LEAST_NAMED = 2
"""Metrics guessed from the words of unknown keys that make a row."""
FIRST_KEY = re.compile(rb"\s{0,80}(['\"])[A-Za-z_][\w./@-]{0,60}\1: ")
DURATION = re.compile(r"(?:(\d{1,6})d)? ?(?:(\d{1,6})h)? ?(?:(\d{1,6})m)? ?(?:(\d{1,9})s)?")
CLOCK = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d{1,2}):(\d{1,2})")


class RowStep(NamedTuple):
    """A row's own step and total, and the resolution of its numbers if the writer rounds them."""

    step: int | None
    max_steps: int | None = None
    resolution: float | None = None


NO_ROW_STEP = RowStep(None)


def number(text: str) -> float | None:
    """The float that a string holds (transformers 5 logs strings like ``'4.2e-05'``, ``'nan'``), or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if "_" not in text else None


def numbers(row: Mapping[str, object]) -> dict[str, float | None]:
    """Keys with a number or null; numbers in strings are converted; other values and empty cells are dropped.

    ``elapsed_time`` becomes ``elapsed_seconds`` (float, seconds since the attempt began).
    """
    values: dict[str, float | None]
    values = {key: value for key, value in row.items() if type(value) is float or value is None}
    if len(values) < len(row):
        for key, value in row.items():
            if key not in values and key not in TEXTS and (known := _other(value)) is not None:
                values[key] = known
    if not NOT_METRICS.isdisjoint(values):
        values = {key: value for key, value in values.items() if key not in NOT_METRICS}
    if None in values.values():
        values = _without_empty_cells(values)
    if (passed := duration(row.get("elapsed_time"))) is not None:
        values["elapsed_seconds"] = passed
    return values


def _without_empty_cells(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """The numbers of a row without a table's cells that are empty on this row."""
    if any(value is None and key.rpartition("/")[2] in ALWAYS_NUMBERS for key, value in values.items()):
        values = {key: value for key, value in values.items() if value is not None}
    held_out = [key for key in values if HELD_OUT.match(key)]
    unmeasured = any(values[key] is None for key in held_out)  # no evaluation at this step: zeros are placeholders
    return {key: value for key, value in values.items() if value or not unmeasured or key not in held_out}


def _other(value: object) -> float | None:
    """The float of an int or of a string that is a number, or None."""
    if type(value) is int:
        return _float(value)
    return number(value) if isinstance(value, str) else None


def place(row: Mapping[str, object]) -> RowStep:
    """The step and total that the row itself names, if any."""
    for key in PAIRS:
        if key in row and isinstance(pair := row[key], str):
            step, _, total = pair.partition("/")
            if (found := whole(step)) is not None:
                return RowStep(found, whole(total), EIGHT_DECIMALS)
    for key in STEPS:
        if key in row and (found := whole(row[key])) is not None:
            return RowStep(found, next(filter(None, (whole(row.get(key)) for key in MAXIMA)), None))
    return NO_ROW_STEP


def unwrapped(row: Mapping[str, object]) -> tuple[Mapping[str, object], bool]:
    """The flat row in ``{"step": 7, "data": {…}}`` of verl's file logger, and whether it was one; others unchanged."""
    data = row.get("data")
    if data is None:
        return row, False
    nested = isinstance(data, Mapping) and any(isinstance(value, Mapping) for value in data.values())
    if not isinstance(data, Mapping) or nested or whole(row.get("step")) is None:  # nested: another writer's event
        return row, False
    return {**data, "step": row["step"]}, True


def flat(row: Mapping[str, Any], deepest: int = DEEPEST) -> Mapping[str, Any]:
    """The row with nested mappings flattened, as ``metrics/reward`` or ``critic/score/mean``."""
    if not any(type(value) is dict for value in row.values()):
        return row
    alone = ["value"]
    row = {key: v["value"] if isinstance(v, dict) and [*v] == alone else v for key, v in row.items()}
    found = {key: value for key, value in row.items() if type(value) is not dict}
    inner = [(key, value) for key, value in row.items() if type(value) is dict]
    if len(inner) == 1 and inner[0][0] in WRAPPERS and inner[0][1].keys().isdisjoint(found.keys() - STEP_KEYS):
        return {**found, **flat(inner[0][1], deepest - 1)} if deepest > 1 else row
    for outer, value in row.items():
        if isinstance(value, dict):
            inside = flat(value, deepest - 1) if deepest > 1 else value
            found.update({f"{outer}/{key}": inner for key, inner in inside.items() if f"{outer}/{key}" not in found})
    return found


def stream(keys: Iterable[str]) -> Stream | None:
    """EVAL if evaluation keys come without those of a training row; None if undecided.

    verl's validation shares the row of its step.
    """
    names = frozenset(keys)
    if not OWN_OF_TRAINING.isdisjoint(names):
        return None
    others = frozenset(name for name in names if not name.startswith(EVALUATION))
    return None if len(others) == len(names) or recognise(others) is not None else Stream.EVAL


def kinds_named(row: Mapping[str, object]) -> list[str]:
    """The kinds that a row names in fields of its own (``"split": "eval"``)."""
    return [text for key in row.keys() & DISCRIMINATORS if isinstance(text := row[key], str)]


def stream_of(row: Mapping[str, object], values: Iterable[str]) -> Stream | None:
    """The stream that a row names in a field of its own, else the one by its keys."""
    for text in kinds_named(row):
        if text.strip().lower() in EVALUATIONS:
            return Stream.EVAL
    return stream(values)


def is_row(values: Mapping[str, float | None]) -> bool:
    """Whether numbers without a step are metrics of a training row."""
    if METRICS & values.keys() or any(key.startswith(("eval_", "rewards/", "train/")) for key in values):
        return True
    return len(values) >= FEW and len(names_training(values)) >= LEAST_NAMED


def is_printed_row(row: Mapping[str, object], values: Mapping[str, float | None]) -> bool:
    """Whether a printed dictionary is a row.

    Without a step, rewards alone are a single completion's, and a learning rate alone is a setting.
    """
    if not is_row(values):
        return False
    if not OWN_OF_UPDATES.isdisjoint(values) or place(row).step is not None:
        return True
    if any(AVERAGED.search(key) for key in values):
        return True
    return any(key.startswith(("eval_", "train/")) or guess(key) not in NO_ROW_ALONE for key in values)


def whole(value: object) -> int | None:
    """A non-negative whole number written as int, float or string, or None."""
    if isinstance(value, str):
        if not value.isdecimal():
            value = value.strip().removesuffix(".0")  # as pandas and spreadsheets write a column with gaps
        return int(value) if value.isdecimal() and len(value) <= LONGEST_NUMBER else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value >= 0 and value == value // 1 and value != float("inf") else None


def duration(text: object) -> float | None:
    """Seconds in ``"1d 2h 3m 4s"`` (ms-swift) or ``"1 day, 0:01:02"`` (LLaMA-Factory), or None."""
    if not isinstance(text, str) or not text or len(text) > LONGEST_NUMBER:
        return None
    if text[-1] == "s" and text[:-1].isdecimal():
        return float(text[:-1])
    if (parts := DURATION.fullmatch(text.strip()) or CLOCK.fullmatch(text.strip())) is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def headless(line: bytes) -> bool:
    """Whether a line is the rest of a row whose beginning was cut off: pairs up to a closing brace, no opening one."""
    if not line.rstrip().endswith(b"}") or b"{" in line:
        return False
    return line.count(b"': ") + line.count(b'": ') >= FEW and (b"reward" in line or b"loss" in line)


def opened(line: bytes) -> bytes:
    """The line with its row's opening brace added if only that is missing, as in rows that were pasted."""
    return b"{" + line.lstrip() if FIRST_KEY.match(line) is not None and headless(line) else line
