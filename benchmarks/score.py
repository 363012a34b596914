"""Compares the findings of ``check`` on labelled runs with their labels: detection, false alarms, delay, per rule.

A finding is *reported* when it is critical or a warning; info explains. A run is *detected* when at least one rule of
each list in ``must`` is reported. A *false alarm* is a reported rule on a healthy run that its ``may`` does not list.
A *wrong extra* is a critical finding on a faulty or config-error run that is neither in ``must`` nor in ``may``; one
that is caused by another reported finding counts as *explained* instead. *Delay* is the step at which the first
matching finding fired, less the step at which the fault began. A run that can't be evaluated never counts as quiet:
the rate of false alarms is over the healthy runs that were evaluated.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from tests.support.bundles import labelled_set

NOW = 1_798_761_600.0
"""What "now" is: 2027-01-01, long after every run."""

REPORTED = frozenset({"critical", "warning"})
KINDS = ("healthy", "faulty", "config-error", "ambiguous")


@dataclass(frozen=True, slots=True)
class RunLabel:
    """What is known of one run; ``entry`` is its path below the folder of the labels."""

    name: str
    entry: str
    kind: str
    must: tuple[frozenset[str], ...] = ()
    may: frozenset[str] = frozenset()
    start: int | None = None
    rows: int = 0
    steps_per_row: float | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """Every rule that ``must`` names."""
        return frozenset().union(*self.must)


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """One run against its label. ``hits`` are the reported rules of each list of ``must``; ``problem``: no answer."""

    label: RunLabel
    evaluated: bool
    hits: tuple[frozenset[str], ...] = ()
    false_alarms: Mapping[str, str] = field(default_factory=dict)
    wrong_extras: frozenset[str] = frozenset()
    explained: frozenset[str] = frozenset()
    delays: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""

    @property
    def delay(self) -> float | None:
        """Steps from the fault to the first matching finding; negative when that came before it."""
        return min(self.delays.values(), default=None)

    @property
    def detected(self) -> bool:
        """Whether every list of ``must`` was hit."""
        return bool(self.hits) and all(self.hits)


def read_label(value: Mapping[str, Any]) -> RunLabel:
    """One entry of a ``labels.json``.

    Raises:
        ValueError: the entry lacks a key, or its label is not known.
    """
    try:
        label = RunLabel(
            name=value["id"],
            entry=value["entry"],
            kind=value["label"],
            must=tuple(frozenset(rules) for rules in value.get("must", ())),
            may=frozenset(value.get("may", ())),
            start=value.get("fault_start_step"),
            rows=value.get("rows") or 0,
            steps_per_row=value.get("steps_per_row"),
        )
    except KeyError as missing:
        raise ValueError(f"a label lacks {missing}") from None
    if label.kind not in KINDS:
        raise ValueError(f"{label.name}: the label must be one of {', '.join(KINDS)}, not {label.kind!r}")
    return label


def judge(label: RunLabel, runs: Sequence[Mapping[str, Any]]) -> ScoredRun:
    """Compare the ``runs`` of a ``check`` answer with the label of their entry."""
    reported = [(f, run) for run in runs for f in run["findings"] if f["severity"] in REPORTED]
    rules = frozenset(finding["rule"] for finding, _ in reported)
    fair = label.wanted | label.may
    unfair = [finding for finding, _ in reported if finding["rule"] not in fair]
    worst = {f["rule"]: f["severity"] for f in sorted(unfair, key=lambda f: f["severity"], reverse=True)}
    critical = [finding for finding in unfair if finding["severity"] == "critical"]
    wrong = frozenset(finding["rule"] for finding in critical if finding.get("caused_by") not in rules)
    healthy = label.kind == "healthy"
    return ScoredRun(
        label=label,
        evaluated=any(run["verdict"] not in {"not-evaluable", "too-short"} for run in runs),
        hits=tuple(rules & wanted for wanted in label.must),
        false_alarms=worst if healthy else {},
        wrong_extras=frozenset() if healthy else wrong,
        explained=frozenset() if healthy else frozenset(f["rule"] for f in critical) - wrong,
        delays=_delays(label, reported),
    )


def _delays(label: RunLabel, reported: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, float]:
    """Steps from the fault to the first finding of each wanted rule."""
    delays: dict[str, float] = {}
    if label.kind != "faulty" or label.start is None:
        return delays
    for finding, run in reported:
        rule, step = finding["rule"], finding["fired_step"]
        if rule in label.wanted and step is not None:
            delay = step * _steps_per_row(label, run) - label.start
            delays[rule] = min(delay, delays.get(rule, delay))
    return delays


def _steps_per_row(label: RunLabel, run: Mapping[str, Any]) -> float:
    """A log without step numbers is counted in rows; its label gives the number of steps per row."""
    counted_rows = (run.get("steps") or 0) <= label.rows + 1
    return label.steps_per_row if label.steps_per_row and counted_rows else 1


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson interval of a share (95 % by default); 0 to 1 where nothing was counted.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    if of == 0:
        return 0.0, 1.0
    share, square = hits / of, z * z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def summary(judged: Sequence[ScoredRun]) -> dict[str, Any]:
    """The numbers over all runs, as strict JSON values."""
    of = {kind: [each for each in judged if each.label.kind == kind] for kind in KINDS}
    faulty = of["faulty"] + of["config-error"]
    healthy = [each for each in of["healthy"] if each.evaluated]
    delays = sorted(each.delay for each in judged if each.delay is not None and each.detected)
    return {
        "runs": {kind: len(runs) for kind, runs in of.items()},
        "not_evaluated": sorted(each.label.name for each in judged if not each.evaluated),
        "problems": {each.label.name: each.problem for each in judged if each.problem},
        "detected": _share(of["faulty"], lambda each: each.detected),
        "detected_config_error": _share(of["config-error"], lambda each: each.detected),
        "false_critical": _share(healthy, lambda each: "critical" in each.false_alarms.values()),
        "false_alarm": _share(healthy, lambda each: bool(each.false_alarms)),
        "wrong_extra": _share(faulty, lambda each: bool(each.wrong_extras)),
        "explained_extras": sum(len(each.explained) for each in faulty),
        "delay": {
            "runs": len(delays),
            "median": statistics.median(delays) if delays else None,
            "p90": delays[math.ceil(0.9 * len(delays)) - 1] if delays else None,
            "max": delays[-1] if delays else None,
            "before_the_fault": sum(delay < -1 for delay in delays),
        },
        "rules": {rule: _per_rule(rule, judged, healthy) for rule in sorted(_named(judged))},
    }


def _named(judged: Iterable[ScoredRun]) -> set[str]:
    return {rule for each in judged for rule in (*each.label.wanted, *each.false_alarms, *each.wrong_extras)}


def _per_rule(rule: str, judged: Sequence[ScoredRun], healthy: Sequence[ScoredRun]) -> dict[str, Any]:
    """How a rule did: where it was wanted (alone or beside alternatives), reported, wrong."""
    wanted = [each for each in judged if rule in each.label.wanted]
    alone = [each for each in wanted if frozenset({rule}) in each.label.must]
    scored = [each for each in judged if each.label.kind in {"faulty", "config-error"}]
    return {
        "wanted": _share(wanted, lambda each: any(rule in hit for hit in each.hits)),
        "wanted_alone": _share(alone, lambda each: any(rule in hit for hit in each.hits)),
        "false_alarm": _share(healthy, lambda each: rule in each.false_alarms),
        "wrong_extra": sum(rule in each.wrong_extras for each in scored),
        "delays": sorted(each.delays[rule] for each in wanted if rule in each.delays),
    }


def _share(runs: Sequence[ScoredRun], holds: Any) -> dict[str, Any]:
    hits = sum(bool(holds(each)) for each in runs)
    low, high = wilson(hits, len(runs))
    return {"hits": hits, "of": len(runs), "low": round(low, 4), "high": round(high, 4)}


def as_text(scores: Mapping[str, Any]) -> Iterator[str]:
    """The summary as lines for people."""
    for title, key in (
        ("faulty runs detected", "detected"),
        ("config errors detected", "detected_config_error"),
        ("healthy runs with a critical false alarm", "false_critical"),
        ("healthy runs with any false alarm", "false_alarm"),
        ("faulty runs with a wrong extra critical", "wrong_extra"),
    ):
        yield f"{title:42} {_as_share(scores[key])}"
    delay = scores["delay"]
    yield f"extra criticals explained by another finding: {scores['explained_extras']}"
    yield (
        f"delay in steps: median {delay['median']}, p90 {delay['p90']}, max {delay['max']} over {delay['runs']} runs; "
        f"{delay['before_the_fault']} fired before the fault"
    )
    ambiguous = scores["runs"]["ambiguous"]
    yield f"ambiguous runs (not scored): {ambiguous}; not evaluated: {scores['not_evaluated'] or 'none'}"
    yield ""
    yield f"{'rule':28} {'reported where wanted':31} {'where wanted alone':31} {'false on healthy':26} extra  delays"
    for rule, numbers in scores["rules"].items():
        wanted, alone, false = (_as_share(numbers[key]) for key in ("wanted", "wanted_alone", "false_alarm"))
        delays = " ".join(f"{delay:g}" for delay in numbers["delays"])
        yield f"{rule:28} {wanted:31} {alone:31} {false:26} {numbers['wrong_extra']:5}  {delays}"


def _as_share(share: Mapping[str, Any]) -> str:
    if not share["of"]:
        return "-"
    per_cent = 100 * share["hits"] / share["of"]
    return f"{share['hits']}/{share['of']} = {per_cent:.0f} % ({100 * share['low']:.0f} to {100 * share['high']:.0f})"


def score(folder: Path, rules: Sequence[Rule]) -> Iterator[ScoredRun]:
    """Check and judge each labelled run of a folder; what is not there is a run without an answer."""
    for value in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
        yield answer(read_label(value), folder, rules)


def answer(label: RunLabel, folder: Path, rules: Sequence[Rule]) -> ScoredRun:
    """One run against its label."""
    try:
        reports = check_runs(find_runs([str(folder / label.entry)])[0], rules, {}, Tick(NOW, live=False))
    except Exception as error:  # noqa: BLE001  one run without an answer is a result
        return ScoredRun(label, evaluated=False, problem=f"{type(error).__name__}: {error}")
    return judge(label, document(reports)["runs"])


def remarks(judged: ScoredRun) -> str:
    """What is wrong with a run's findings, in words."""
    lines = [judged.problem] if judged.problem else []
    lines += [
        f"missed {'|'.join(sorted(rules))}"
        for rules, hit in zip(judged.label.must, judged.hits, strict=False)
        if not hit
    ]
    lines += [f"FALSE {severity} {rule}" for rule, severity in sorted(judged.false_alarms.items())]
    lines += [f"extra critical {rule}" for rule in sorted(judged.wrong_extras)]
    lines += [] if judged.evaluated else ["not evaluated"]
    return "; ".join(lines)


def main() -> int:
    """Score and print."""
    parser = argparse.ArgumentParser(description="score the rules over labelled runs")
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="holds labels.json (default: bundled runs)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
    parser.add_argument(
        "--rules", action="append", default=[], type=Path, metavar="FILE", help="rules over the shipped ones"
    )
    chosen = parser.parse_args()
    rules = load_rules(chosen.rules)
    with tempfile.TemporaryDirectory() as scratch:
        folders = chosen.folders or [labelled_set(Path(scratch))]
        judged = [each for folder in folders for each in score(folder, rules)]
    scores = summary(judged)
    for each in judged:
        if text := remarks(each):
            print(f"{each.label.name} ({each.label.kind}): {text}")
    print("\n".join(as_text(scores)))
    if chosen.json:
        chosen.json.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
