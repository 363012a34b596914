"""The warm-up takes half of the run or more, so the learning rate seldom reaches its set value."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem
from grpo_watch.preflight.predict import predict

NAME = "warmup-longer-than-run"
MOST = 0.5
"""Share of the run from which a warm-up is reported."""


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the warm-up takes half of the predicted run or more."""
    names = settings.name_of("warmup_steps"), settings.name_of("warmup_ratio")
    if not all(names):
        return
    steps, ratio = (max(settings.number(name) or 0, 0) for name in names)  # -1 is none
    prediction = predict(settings)
    total = prediction.max_steps if prediction else None
    if 0 < steps < 1 and settings.facts.on_trainer:  # newer transformers take a share here
        ratio, steps = steps, 0
    share = steps / total if steps and total else ratio
    if share < MOST:
        return
    length = f"{steps:g} of {total} steps" if steps and total else f"{share:.0%} of the run"
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        f"the warm-up takes {length}: the learning rate seldom reaches its set value",
        "5 to 10 % of the steps are usual",
        settings.where(*names),
    )
