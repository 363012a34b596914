"""``grpo-watch rules lint`` and ``rules test``: the problems of rule files, and the tests that fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest
from grpo_watch.config.settings import load_settings
from grpo_watch.errors import RuleError, UsageError
from grpo_watch.frameworks.framework_tables import frameworks, produced_by
from grpo_watch.rules.lint import lint
from grpo_watch.rules.packs import load_rules, packs_folder
from grpo_watch.rules.rule_tests import problem, read_tests

LINT_SCHEMA = "grpo-watch/rules-lint/1"
NAMED = 5
"""Files that one line names."""
TEST_SCHEMA = "grpo-watch/rules-test/1"


def lint_command(files: Sequence[Path], framework: str | None, output_format: str, config: Path | None = None) -> int:
    """Print what is wrong in the files, or in the rules in effect; returns 1 where something is, else 0.

    Raises:
        UsageError: a file is missing, or the framework is not known.
    """
    _require(files)
    files = files or [*_shipped(), *load_settings(config=config).settings.rules]
    problems = lint(files, _produced(framework), sorted(frameworks()))
    if output_format == "json":
        document = {"schema": LINT_SCHEMA, "problems": [_problem(error) for error in problems]}
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{error}\n" for error in problems))
        sys.stdout.write("" if problems else f"no problems in {_named(files)}\n")
    return int(bool(problems))


def test_command(files: Sequence[Path], output_format: str, overlays: Sequence[Path], config: Path | None) -> int:
    """Run every test, or those of the shipped rules, under the rules in effect; returns 1 where one fails, else 0.

    ``overlays`` lie over the shipped rules, else the rule files of the settings.

    Raises:
        UsageError: a file is missing, or a test or rule file can't be read.
    """
    _require(files)
    files = files or _shipped("tests")
    overlays = overlays or load_settings(config=config).settings.rules
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(overlays, detectors=detectors)}
    tests = [test for file in files for test in read_tests(file, rules).tests]
    results = [(test, problem(test, rules, detectors)) for test in tests]
    failed = [(test, wrong) for test, wrong in results if wrong is not None]
    if output_format == "json":
        document = {
            "schema": TEST_SCHEMA,
            "tests": [
                {"rule": test.rule, "name": test.name, "place": str(test.example.place), "problem": wrong}
                for test, wrong in results
            ],
        }
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"FAILED {test.rule}: {wrong}\n" for test, wrong in failed))
        sys.stdout.write(f"{len(results) - len(failed)} of {len(results)} tests passed\n")
    return int(bool(failed))


def _shipped(folder: str = ".") -> list[Path]:
    """The shipped rule files, or those of their tests, sorted.

    Raises:
        UsageError: the installation has none.
    """
    found = sorted((packs_folder() / folder).glob("*.yaml"))
    if not found:
        raise UsageError(f"no shipped rule files in {packs_folder() / folder}; name a FILE")
    return found


def _named(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files)) if len(files) <= NAMED else f"{len(files)} rule files"


def _require(files: Sequence[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file")


def _produced(framework: str | None) -> frozenset[str] | None:
    if framework is None:
        return None
    produced = produced_by(framework)
    if produced is None:
        fix = nearest(framework, frameworks()) or f"known frameworks: {', '.join(sorted(frameworks()))}"
        raise UsageError(f"--framework {framework!r}: unknown ({fix})")
    return produced


def _problem(error: RuleError) -> dict[str, object]:
    place = error.place
    return {
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "message": error.message,
        "fix": error.fix,
    }
