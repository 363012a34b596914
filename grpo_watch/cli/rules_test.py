"""``grpo-watch rules test``: runs test files and says which tests fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grpo_watch.catalogue import catalogue
from grpo_watch.config.rules import load_rules
from grpo_watch.errors import UsageError
from grpo_watch.runtime.rule_tests import problem, read_tests

SCHEMA = "grpo-watch/rules-test/1"


def test_command(files: list[Path], output_format: str, overlays: list[Path]) -> int:
    """Run every test under the shipped rules with ``overlays``; returns 1 where one fails, else 0.

    Raises:
        UsageError: a file is missing, or a test or rule file can't be read.
    """
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file")
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(overlays, detectors=detectors)}
    tests = [test for file in files for test in read_tests(file, rules).tests]
    results = [(test, problem(test, rules, detectors)) for test in tests]
    failed = [(test, wrong) for test, wrong in results if wrong is not None]
    if output_format == "json":
        told = {
            "schema": SCHEMA,
            "tests": [
                {"rule": test.rule, "name": test.name, "place": str(test.example.place), "problem": wrong}
                for test, wrong in results
            ],
        }
        sys.stdout.write(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"FAILED {test.rule}: {wrong}\n" for test, wrong in failed))
        sys.stdout.write(f"{len(results) - len(failed)} of {len(results)} tests passed\n")
    return int(bool(failed))
