"""Turns a launch into its assessment: every check, the nearest valid settings, and the predicted run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_rules import Prediction, lacking, rules_of, uncounted, unevaluated
from grpo_watch.frameworks.launches import Launch, LaunchSettings, launch_facts
from grpo_watch.preflight.checks import batch, evidence, learning
from grpo_watch.preflight.findings import Assessment, LaunchProblem, Suggestion
from grpo_watch.preflight.predict import predict
from grpo_watch.preflight.suggest import suggest


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name (``batch-not-divisible``), its function, and its page."""

    name: str
    find: Callable[[LaunchSettings], Iterable[LaunchProblem]]
    page: Path

    def judge(self, settings: LaunchSettings) -> Iterator[LaunchProblem]:
        """The problems of a launch, under this check's name unless they have their own."""
        return (problem if problem.check else replace(problem, check=self.name) for problem in self.find(settings))


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Check]:
    """Every check by name, sorted: the themes' functions and their pages."""
    found = {}
    for find in (*batch.CHECKS, *evidence.CHECKS, *learning.CHECKS):
        page = Path(batch.__file__).with_name(f"{find.__name__}.md")
        found[find.__name__.replace("_", "-")] = Check(find.__name__.replace("_", "-"), find, page)
    return MappingProxyType(dict(sorted(found.items())))


__all__ = ["Assessment", "LaunchProblem", "Prediction", "Suggestion", "assess"]

ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def assess(launch: Launch) -> Assessment:
    """Judge a launch without running anything."""
    if launch.framework is None:
        unknown = ("the framework is not known (--framework)",)
        return Assessment(None, launch.version, missing=unknown, unresolved=launch.unresolved)
    if launch.framework not in launch_facts():
        known = ", ".join(sorted(launch_facts()))
        unknown = (f"only {known} can be judged (--framework)",)
        return Assessment(launch.framework, launch.version, missing=unknown, unresolved=launch.unresolved)
    settings = LaunchSettings(launch)
    problems = [problem for check in catalogue().values() for problem in check.judge(settings)]
    return Assessment(
        framework=launch.framework,
        version=settings.version,
        problems=tuple(sorted(problems, key=lambda problem: ORDER.index(problem.severity))),
        suggestions=suggest(settings),
        prediction=predict(settings),
        missing=tuple(_missing(settings)),
        version_origin=launch.version_origin,
        unresolved=(*launch.unresolved, *settings.facts.newer_than_known(launch.version)),
    )


def _missing(settings: LaunchSettings) -> Iterator[str]:
    """The inputs that a full answer needs, one line each."""
    if settings.launch.version is None:
        yield f"the version is not known (--framework-version); the rules of {settings.facts.assumed()} are applied"
    yield from settings.facts.older_than_known(settings.launch.version)
    if settings.facts.on_trainer:
        yield from lacking(settings)
        yield from uncounted(settings)
        yield from unevaluated(settings)
    else:
        yield from rules_of(settings).lacking(settings)
    if settings.dataset_size is None and (settings.whole(settings.name_of("max_steps") or "max_steps") or 0) <= 0:
        yield "the number of training rows is not known (--dataset-size)"
