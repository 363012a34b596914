"""Turns a launch into its assessment: every check, the nearest valid settings, and the predicted run."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.arithmetic import lacking
from grpo_watch.preflight.catalogue import catalogue
from grpo_watch.preflight.defaults import Settings, tables
from grpo_watch.preflight.findings import Assessment, Prediction, Problem, Suggestion
from grpo_watch.preflight.launch import Launch
from grpo_watch.preflight.own_rules import OWN
from grpo_watch.preflight.predict import predict
from grpo_watch.preflight.suggest import suggest
from grpo_watch.preflight.versions import ON_HF, assumed

__all__ = ["Assessment", "Prediction", "Problem", "Suggestion", "assess"]

ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def assess(launch: Launch) -> Assessment:
    """Judge a launch without running anything."""
    if launch.framework is None:
        return Assessment(None, launch.version, missing=("the framework is not known (--framework)",))
    if launch.framework not in tables():
        known = ", ".join(tables())
        return Assessment(launch.framework, launch.version, missing=(f"only {known} can be judged (--framework)",))
    settings = Settings(launch)
    problems = [problem for check in catalogue().values() for problem in check.judge(settings)]
    return Assessment(
        framework=launch.framework,
        version=settings.version,
        problems=tuple(sorted(problems, key=lambda problem: ORDER.index(problem.severity))),
        suggestions=suggest(settings),
        prediction=predict(settings),
        missing=tuple(_missing(settings)),
        version_origin=launch.version_origin,
    )


def _missing(settings: Settings) -> Iterator[str]:
    """What has to be said for a full answer."""
    if settings.launch.version is None:
        yield f"the version is not known (--framework-version); the rules of {assumed(settings.framework)} are applied"
    if settings.framework in ON_HF:
        yield from lacking(settings)
    elif OWN[settings.framework].needs_processes and not settings.world_size:
        yield "the number of processes is not known (--world-size)"
    if settings.dataset_size is None and (settings.whole("max_steps") or 0) <= 0:
        yield "the number of training rows is not known (--dataset-size)"
