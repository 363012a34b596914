"""The results of preflight: problems, nearest valid settings, a prediction, missing inputs; also as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.frameworks.launch_rules import Prediction


@dataclass(frozen=True, slots=True)
class LaunchProblem:
    """A fault that will stop the run or silently ruin it.

    ``message`` says what happens and when, ``hint`` what to change, ``where`` the place of the setting to blame (empty
    for a default). ``says`` is the framework's own text, empty if it prints none. ``check`` is the name of the check,
    unless the one that found it named another.
    """

    severity: Severity
    message: str
    hint: str = ""
    where: str = ""
    says: str = ""
    check: str = ""


critical = partial(LaunchProblem, Severity.CRITICAL)
warning = partial(LaunchProblem, Severity.WARNING)
info = partial(LaunchProblem, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Settings that the framework accepts.

    ``changes`` maps the framework's names to new values (None: leave the setting out). ``was`` describes the old value
    of a setting that was not given: ``default 8``, ``not given``.
    """

    changes: Mapping[str, Scalar]
    why: str
    was: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All results for one launch.

    ``version_origin`` says where the version was read; ``missing`` names, in one line each, the settings that a fuller
    answer needs, ``unresolved`` the unread parts of the launch.
    """

    framework: str | None
    version: str | None
    problems: tuple[LaunchProblem, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    prediction: Prediction | None = None
    missing: tuple[str, ...] = ()
    version_origin: str = ""
    unresolved: tuple[str, ...] = ()


SCHEMA = "grpo-watch/preflight/1"
FINE, PROBLEMS, MISSING = 0, 1, 3
OPTIONAL = ("completions", "tokens", "notes")
"""Parts of a prediction that need more than the batch; left out when empty."""


def exit_code(assessment: Assessment) -> int:
    """1 if something will fail or silently ruin the run, else 3 if too little is known to say, else 0."""
    if any(problem.severity is not Severity.INFO for problem in assessment.problems):
        return PROBLEMS
    return MISSING if assessment.missing or assessment.framework is None else FINE


def document(assessment: Assessment) -> dict[str, Any]:
    """The JSON document. ``ok`` is true with exit code 0.

    ``missing`` names the inputs that a fuller answer needs, ``unresolved`` the unread parts.
    """
    return {
        "schema": SCHEMA,
        "framework": assessment.framework,
        "framework_version": assessment.version,
        "framework_version_from": assessment.version_origin,
        "ok": exit_code(assessment) == FINE,
        "problems": [{"check": problem.check, **_given(asdict(problem), "says")} for problem in assessment.problems],
        "suggestions": [{**suggestion.changes, "why": suggestion.why} for suggestion in assessment.suggestions],
        "prediction": None if assessment.prediction is None else _prediction(assessment.prediction),
        "missing": list(assessment.missing),
        "unresolved": list(assessment.unresolved),
    }


def _given(document: dict[str, Any], *optional: str) -> dict[str, Any]:
    """The document without empty optional parts."""
    return {name: value for name, value in document.items() if value or name not in optional}


def _prediction(prediction: Prediction) -> dict[str, Any]:
    prompts = prediction.prompts_per_step  # a step that uses part of a group keeps the fraction
    whole = int(prompts) if prompts is not None and prompts == int(prompts) else prompts
    return _given({**asdict(prediction), "prompts_per_step": whole}, *OPTIONAL)
