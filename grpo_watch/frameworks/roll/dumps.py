"""ROLL's rollouts: ``rollout_dump_data.step_<N>.jsonl``, the whole step in columns on one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.dump_formats import DumpRow, RolloutDumps


def _rows(row: Mapping[str, object]) -> Iterable[DumpRow]:
    """The completions of a line; those of one prompt share its ``id``."""
    texts, scores, ids = row["responses"], row["scores"], row["id"]
    prompts = row.get("prompt") or row.get("messages") or ids
    if all(isinstance(column, list) for column in (texts, scores, ids, prompts)):
        for text, score, one, prompt in zip(texts, scores, ids, prompts, strict=False):  # type: ignore[call-overload]
            yield DumpRow(prompt, text, {"score": score}, str(one))


DUMPS = RolloutDumps(
    framework="roll",
    file=re.compile(r"rollout_dump_data\.step_(\d{1,12})\.jsonl"),
    keys=frozenset({"id", "responses", "scores"}),
    read=_rows,
)
