"""Counts detections and false alarms of plain thresholds over synthetic runs: the baseline of docs/comparison.md.

    python -m benchmarks.thresholds [--healthy 1000] [--per-kind 50] [--check]

Any threshold that fires counts: as found in a faulty run with any fault, and as a false alarm in a healthy one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from benchmarks.robustness import EVENT_KINDS, UNFED, percent, wilson
from benchmarks.synthetic.runs import KINDS, SyntheticRun, faulty, healthy
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "comparison.md"
BEGIN, END = "<!-- thresholds:begin -->", "<!-- thresholds:end -->"
EASY_OTHERWISE = frozenset({"crashed", "stalled", "metrics-become-nan"})
"""A heartbeat, the job's exit code or ``x != x`` finds these too, so they don't count against thresholds."""
JUDGED = tuple(kind for kind in KINDS if kind not in EVENT_KINDS | UNFED | EASY_OTHERWISE)
ALMOST, HARDLY = 0.9, 0.35
"""Shares of a kind's runs: found from the first on; below the second by chance, as healthy runs raise alarms too."""


@lru_cache(maxsize=1)
def thresholds() -> tuple[Rule, ...]:
    """The conditions of thresholds.yaml, read once."""
    return tuple(rule for rule in load_rules([HERE / "thresholds.yaml"]) if rule.when is not None)


def fired(run: SyntheticRun) -> frozenset[str]:
    """The thresholds that fired at any time of the run."""
    pipeline = Pipeline("run", thresholds(), {})
    for item in run.items:
        pipeline.feed(item)
    return frozenset(found.rule for found in pipeline.snapshot().findings)


def report(calm: int, per_kind: int) -> Iterator[str]:
    """The lines of the page: false alarms, what was found, and by kind of fault."""
    alarms = [fired(healthy(seed)) for seed in range(calm)]
    cried = sum(bool(alarm) for alarm in alarms)
    low, high = wilson(cried, calm)
    by_rule = Counter(rule for alarm in alarms for rule in alarm)
    alarms = ", ".join(f"`{rule}` {count}" for rule, count in by_rule.most_common()) or "none"
    found = {kind: sum(bool(fired(faulty(kind, seed))) for seed in range(per_kind)) / per_kind for kind in JUDGED}
    hits, count = round(sum(found.values()) * per_kind), per_kind * len(JUDGED)
    yield (
        f"Of {calm:,} healthy runs {cried:,} raise an alarm ({percent(cried / calm)}, 95 % interval {percent(low)} to"
        f" {percent(high)}): {alarms}. Of {count:,} runs with one of {len(JUDGED)} faults {hits:,} are found"
        f" ({percent(hits / count)})."
    )
    yield ""
    yield f"- In nine of ten runs or more: {names(found, ALMOST, 1.0)}."
    yield f"- More often than in a third: {names(found, HARDLY, ALMOST - 1e-9)}."
    yield f"- About as often as healthy runs alarm, or less: {names(found, 0.0, HARDLY - 1e-9)}."


def names(found: dict[str, float], least: float, most: float) -> str:
    """The kinds whose share lies between the bounds, both included."""
    return ", ".join(kind for kind, share in found.items() if least <= share <= most) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and put the lines between the page's markers unless ``--check`` is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--per-kind", type=int, default=50)
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    text = "\n".join(report(chosen.healthy, chosen.per_kind))
    print(text)
    if not chosen.check:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
