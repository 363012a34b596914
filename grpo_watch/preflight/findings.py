"""What preflight reports of a launch: problems, nearest valid settings, a prediction, and missing inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.frameworks.launch_rules import Prediction


@dataclass(frozen=True, slots=True)
class LaunchProblem:
    """One thing that will stop the run or silently ruin it.

    ``message`` says what happens and when, ``hint`` what to change, ``where`` the place of the setting to blame (empty
    where it is a default). ``says`` is the framework's own text, empty where it says nothing. ``check`` is the name of
    the check, where the one that found it did not name another.
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

    ``changes`` maps its own names to new values (None: leave the setting out). ``keeps`` names what stays as it was:
    ``memory per device`` (or lower), ``group size``, ``generation batch``, ``completions per step``. ``was`` says in
    words what held where the setting was not given: ``default 8``, ``not given``.
    """

    changes: Mapping[str, Scalar]
    why: str
    keeps: tuple[str, ...] = ()
    was: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All of it for one launch.

    ``version_origin`` says where the version was read; ``missing`` says in one line each which setting a fuller answer
    needs, ``unresolved`` what of the launch could not be read. ``tried`` says what was tried in vain where something is
    refused and there are no suggestions.
    """

    framework: str | None
    version: str | None
    problems: tuple[LaunchProblem, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    prediction: Prediction | None = None
    missing: tuple[str, ...] = ()
    version_origin: str = ""
    unresolved: tuple[str, ...] = ()
    tried: str = ""
