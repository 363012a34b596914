"""Backtests over many runs, in several processes; one bad run never stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from grpo_watch.catalogue import catalogue
from grpo_watch.children.pool import in_processes
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.offline import ReplayedRule, backtest
from grpo_watch.sources.discovery.discover import FoundRun


@dataclass(frozen=True, slots=True)
class Backtest:
    """One run under some rules; ``now`` is when it ends (Unix seconds)."""

    run: FoundRun
    rules: tuple[Rule, ...]
    now: float


def backtest_all(
    runs: Sequence[FoundRun], rules: Sequence[Rule], now: float, processes: int = 1
) -> tuple[list[ReplayedRule], list[str]]:
    """Each rule over each run, run by run, and one line for each run that could not be replayed."""
    if processes == 1 or len(runs) == 1:
        return list(backtest(runs, rules, catalogue(), now)), []
    pieces = [Backtest(run, tuple(rules), now) for run in runs]
    answers = {answer.place: answer for answer in in_processes(_work, pieces, min(processes, len(runs)))}
    ordered = [answers[place] for place in range(len(runs))]
    replayed = [
        each for answer in ordered if not answer.error for each in msgspec.msgpack.decode(answer.result, type=_RESULT)
    ]
    return replayed, [f"{run.name}: {answer.error}" for run, answer in zip(runs, ordered, strict=True) if answer.error]


_RESULT = list[ReplayedRule]


def _work(piece: Backtest) -> bytes:
    return msgspec.msgpack.encode(list(backtest([piece.run], piece.rules, catalogue(), piece.now)))
