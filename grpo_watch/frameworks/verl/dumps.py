"""verl's rollouts: ``<step>.jsonl`` in ``trainer.rollout_data_dir``, one row per completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.dump_formats import DumpRow, RolloutDumps, is_reward

NO_REWARDS = frozenset({"input", "output", "gts", "step", "uid", "request_id"})
VALIDATION = re.compile(r"(?:^|[._-])(?:val|valid|validation|eval)(?:$|[._-])", re.IGNORECASE)
UID = re.compile(r"(.{1,200})_(\d{1,9})_(\d{1,9})", re.DOTALL)
PADDING = re.compile(r"pad[0-9a-f]{32}")


def _rows(row: Mapping[str, object]) -> Iterable[DumpRow]:
    """Rows of all versions. From 0.9 on there is a ``uid`` (``<group>_<rollout>_<turn>``), and rows of padding."""
    rewards = {name: value for name, value in row.items() if name not in NO_REWARDS and is_reward(name, [value])}
    uid = row.get("uid")
    found = UID.fullmatch(uid) if isinstance(uid, str) else None
    if found is None:
        yield DumpRow(row["input"], row["output"], rewards)
    elif PADDING.fullmatch(found[1]) is None:
        yield DumpRow(row["input"], row["output"], rewards, found[1], int(found[2]), int(found[3]))


DUMPS = RolloutDumps(
    framework="verl",
    file=re.compile(r"(\d{1,12})\.jsonl"),
    keys=frozenset({"input", "output", "score", "step"}),
    read=_rows,
    evaluation=lambda name, steps: VALIDATION.search(name) is not None or 0 in steps,  # training begins at step 1
)
