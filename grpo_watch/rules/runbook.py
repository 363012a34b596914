"""Reads a detector's runbook (Markdown next to its module): its text, its summary, and what parameters mean."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_watch.engine.detector import Detector, Param
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import FilePlace, RuleError


@dataclass(frozen=True, slots=True)
class Runbook:
    """The text of one runbook; ``summary`` is the sentence under the title."""

    path: Path
    text: str

    @property
    def summary(self) -> str:
        """The paragraph between the title and the first section."""
        head = self.text.partition("\n## ")[0]
        return " ".join(head.partition("\n")[2].split())


def page_of(detector: type[Detector]) -> Path:
    """A detector's runbook: next to its module, called like its class."""
    return Path(inspect.getfile(detector)).with_name(f"{detector.stem()}.md")


def runbook_of(detector: type[Detector]) -> Runbook:
    """The runbook next to the detector's module.

    Raises:
        RuleError: there is none.
    """
    path = page_of(detector)
    try:
        return Runbook(path, path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise RuleError(f"the runbook can't be read: {problem.strerror}", FilePlace(str(path))) from None


def runbook_for(rule: Rule, detectors: Mapping[str, type[Detector]]) -> Runbook:
    """The page of a rule; for a condition what its definition says."""
    if rule.when is None:
        return runbook_of(detectors[rule.detector or rule.name])
    says = f"`{rule.when}` (defined in {rule.where})"
    return Runbook(Path(rule.where), f"# {rule.name}\n\n{rule.summary}\n\n## How it is computed\n\n{says}\n")


def parameters_of(rule: Rule, detectors: Mapping[str, type[Detector]]) -> list[dict[str, Any]]:
    """Each parameter of a rule as it is in force; none of a condition."""
    detector = None if rule.when is not None else detectors.get(rule.detector or rule.name)
    return [
        {
            "name": name,
            "value": rule.params.get(name, param.default),
            "default": param.default,
            "allowed": bounds(param),
            "help": param.help,
        }
        for name, param in (detector.params if detector else {}).items()
    ]


def parameter_table(params: Mapping[str, Param]) -> str:
    """The Markdown table of a detector's parameters, one line each; ends with a newline."""
    if not params:
        return "None.\n"
    rows = [
        f"| `{name}` | {_number(param.default)} | {bounds(param)} | {param.help} |" for name, param in params.items()
    ]
    return "\n".join(["| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows]) + "\n"


def bounds(param: Param) -> str:
    """The allowed values in words: ``0 … 1``, ``≥ 2``, ``any number``."""
    if isinstance(param.default, bool):
        return "true, false"
    if isinstance(param.default, str):
        return "text"
    low, high = (None if bound is None else _number(bound) for bound in (param.minimum, param.maximum))
    if low is not None and high is not None:
        return f"{low} … {high}"
    if low is None and high is None:
        return "any number"
    return f"≥ {low}" if high is None else f"≤ {high}"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"
