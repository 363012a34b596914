"""NeMo-RL's samples: ``train_data_step<N>.jsonl`` in its log folder, one row per completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.dump_formats import DumpRow, RolloutDumps

MOST_MESSAGES = 3
"""System, user, assistant: in longer conversations nothing shows where the prompt ends."""


def _rows(row: Mapping[str, object]) -> Iterable[DumpRow]:
    """One sample; ``content`` lists its messages, the last is the completion.

    Conversations of several turns are left out. Of the token lists next to it (padding and all) only the advantages are
    used.
    """
    content = row["content"]
    if isinstance(content, list) and 1 < len(content) <= MOST_MESSAGES:
        yield DumpRow(content[:-1], content[-1], {"reward": row["rewards"], **_advantage(row)})


def _advantage(row: Mapping[str, object]) -> Mapping[str, object]:
    """The advantage, equal for all tokens that count; None for a sample that is masked out of the loss."""
    tokens, mask = _first(row.get("advantages")), _first([row.get("sample_loss_mask")])
    if tokens and all(isinstance(value, (int, float)) for value in tokens):
        return {"advantage": None if mask == [0] else max(tokens, key=abs)}
    return {}


def _first(values: object) -> list[Any]:
    """The innermost list: some versions log a batch of one."""
    while isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return values if isinstance(values, list) else []


DUMPS = RolloutDumps(
    framework="nemo-rl",
    file=re.compile(r"train_data_step(\d{1,12})\.jsonl"),
    keys=frozenset({"content", "rewards", "idx"}),
    read=_rows,
)
