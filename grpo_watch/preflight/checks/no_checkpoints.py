"""No checkpoint is written while the run goes on: checksums of weights can't tell whether it learns."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Problem
from grpo_watch.preflight.predict import predict
from grpo_watch.preflight.versions import ON_HF

NAME = "no-checkpoints"
NEVER = -1
OWN = {"verl": "trainer.save_freq", "openrlhf": "ckpt.save_steps"}


def judge(settings: Settings) -> Iterator[Problem]:
    """One note where saving is off, or where the interval is longer than half of the predicted run."""
    if settings.framework in OWN:
        name = OWN[settings.framework]
        if settings.whole(name) == NEVER:
            yield _problem(settings, name, f"{name} is -1: no checkpoint is ever written")
    elif settings.framework in ON_HF:
        prediction, every = predict(settings), settings.number("save_steps") or 0
        total = prediction.max_steps if prediction else None
        if settings.word("save_strategy") == "no":
            yield _problem(settings, "save_strategy", "save_strategy is no: no checkpoint is ever written")
        elif settings.word("save_strategy") == "steps" and total and every > total / 2:
            # two checkpoints are what it takes to compare
            yield _problem(
                settings, "save_steps", f"save_steps {every:g} of {total} steps: no two checkpoints to compare"
            )


def _problem(settings: Settings, name: str, message: str) -> Problem:
    hint = "save at least twice in the first tenth of the run; save_total_limit keeps the disk free"
    return Problem(NAME, Severity.INFO, message, hint, settings.where(name))
