"""tinker-cookbook's summaries (0.4 to 0.6): ``iteration_<N>/train_rollout_summaries.jsonl``, one episode per line."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from grpo_watch.frameworks.dump_formats import RolloutDumps

CUT = frozenset({"max_tokens_reached", "stop/max_tokens", "num_truncations_max_turn_tokens"})
"""Metrics of a turn that ended at the token limit; environments without them log no ``stop/…`` either."""
CALL, RESULT, UNPARSED = "tool_call_", "tool_result_", "parse_errors"
"""Keys of a turn's logs: a call, its result, and a line for each call that could not be parsed."""
FAILED = '{"error":'
"""Beginning of a failed call's result (``error_tool_result``)."""


def _measured(episodes: Iterable[Mapping[str, Any]], longest: float | None) -> Mapping[str, float | None]:
    """Metrics computed from a step's episodes that ``metrics.jsonl`` lacks; only those that are known.

    A mean there is over the turns that have the metric, so it never gives a share of truncated turns.
    """
    rewards: dict[object, list[float]] = defaultdict(list)
    cut, lengths, ages = list[bool](), list[float](), list[float]()
    says_stop, calls, failed = False, 0, 0
    for episode in episodes:
        turns: Sequence[Mapping[str, Any]] = episode["steps"] or ()
        rewards[episode["group_idx"]] += _finite([episode["total_reward"]])
        tokens = _finite([turn.get("ac_len") for turn in turns])
        metrics = {name for turn in turns for name, value in (turn.get("metrics") or {}).items() if value}
        says_stop = says_stop or any(name.startswith("stop/") for name in metrics)
        cut.append(not CUT.isdisjoint(metrics) or (longest is not None and max(tokens, default=0) >= longest))
        lengths += tokens
        if episode["sampling_client_step"] is not None:
            ages += _finite([episode["iteration"] - episode["sampling_client_step"]])
        logged = [(name, str(value)) for turn in turns for name, value in (turn.get("logs") or {}).items()]
        unparsed = sum(len(value.splitlines()) for name, value in logged if name == UNPARSED)
        calls += unparsed + sum(name.startswith(CALL) for name, _ in logged)
        failed += unparsed + sum(name.startswith(RESULT) and value.startswith(FAILED) for name, value in logged)
    spreads = [stdev(group) for group in rewards.values() if len(group) > 1]
    row = {
        "reward/std": fmean(spreads) if spreads else None,
        "truncated": fmean(cut) if says_stop or any(cut) or (cut and longest is not None) else None,
        "ac_tokens/max": max(lengths, default=None),
        "staleness": fmean(ages) if ages else None,
        "tool_calls": calls / len(cut) if calls else None,
        "tool_failures": failed / calls if calls else None,
    }
    return {f"rollouts/{name}": value for name, value in row.items() if value is not None}


def _finite(values: Iterable[Any]) -> list[float]:
    """The finite numbers: a failed episode has none, or NaN."""
    return [value for value in values if value is not None and math.isfinite(value)]


DUMPS = RolloutDumps(
    framework="tinker-cookbook",
    file=re.compile(r"iteration_(\d{1,12})"),
    keys=frozenset({"group_idx", "total_reward", "iteration", "sampling_client_step", "steps"}),
    inner="train_rollout_summaries.jsonl",
    measure=_measured,
)
