"""Reduces what a run logged to wandb to what is read of it: plain values, and tables of completions without texts."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_watch.frameworks.row_numbers import LONGEST_NUMBER, whole
from grpo_watch.sources.completions.summarise import Grouping
from grpo_watch.sources.completions.table_file import columns_of
from grpo_watch.sources.excerpt_privacy import KeptTexts
from grpo_watch.sources.rows.step_assembly import PROFILING, STEP_KEYS
from grpo_watch.sources.trackers.logged_tables import TableSummary, summarised
from grpo_watch.sources.trackers.wandb_api.remote import LoggedCall, TableRef

ONE_PER_PROMPT = ("log_unique_prompts", "wandb_log_unique_prompts")
"""TRL 0.17 and later: its wandb tables then keep one row of each prompt."""
OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
NO_TABLE = TableSummary(None, Grouping((), "the table can not be read: it has no columns prompt and completion"))


def one_per_prompt(raw: Mapping[str, object]) -> bool:
    """Whether tables of completions keep one completion of each prompt."""
    return any(raw.get(key) is True for key in ONE_PER_PROMPT)


def logged_call(row: Mapping[str, object]) -> LoggedCall | None:
    """One row of the history; None where it holds no more than a measured duration, as three of four of TRL's do."""
    order, time = whole(row.get("_step")), row.get("_timestamp")
    if order is None or not any(
        name not in OWN and name not in STEP_KEYS and not name.startswith(PROFILING) for name in row
    ):
        return None
    # wandb's network process hands the keys over in random order; ours must not depend on it.
    plain = {name: row[name] for name in sorted(row) if name not in OWN and _may_be_number(row[name])}
    return LoggedCall(order, plain, float(time) if isinstance(time, (int, float)) else None, table_ref(row))


def _may_be_number(value: object) -> bool:
    """Whether a value is a number, null, or a text that can be one; all others stay in this process."""
    return value is None or isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= LONGEST_NUMBER)


def table_ref(row: Mapping[str, object]) -> TableRef | None:
    """The table of completions in one logged call, if there is one.

    TRL (0.15 and later) and ms-swift log it under ``completions``. verl's ``val/generations`` and OpenRLHF's
    ``train/generated_samples`` hold samples, no groups, and are passed over. A table that is added to bit by bit
    (``log_mode`` INCREMENTAL) is logged again as a whole at the end of a run.
    """
    for key, value in row.items():
        if not isinstance(value, Mapping) or key.rsplit("/", 1)[-1] != "completions":
            continue
        path, kind = value.get("path"), value.get("_type")
        if kind == "table-file" and isinstance(path, str) and path.startswith("media/table/") and ".." not in path:
            return TableRef(path, whole(value.get("size")) or 0)
    return None


def summarised_table(data: bytes, group_size: int | None, *, examples: KeptTexts) -> TableSummary:
    """The groups in the content of a table's file."""
    try:
        return summarised(columns_of(data), group_size, examples=examples) or NO_TABLE
    except ValueError:
        return NO_TABLE
