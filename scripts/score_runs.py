"""Scores the rules over folders of labelled runs (``labels.json``); without a folder over the bundled runs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from grpo_watch.cli.check import check_runs, find_runs  # noqa: E402  the checkout, not an installed copy
from grpo_watch.engine.records import Tick  # noqa: E402
from grpo_watch.engine.rule import Rule  # noqa: E402
from grpo_watch.report.check_document import document  # noqa: E402
from grpo_watch.report.score import RunLabel, ScoredRun, as_text, judge, read_label, summary  # noqa: E402
from grpo_watch.rules.packs import load_rules  # noqa: E402
from tests.support.bundles import labelled_set  # noqa: E402

NOW = 1_798_761_600.0
"""What "now" is: 2027-01-01, long after every run."""


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
