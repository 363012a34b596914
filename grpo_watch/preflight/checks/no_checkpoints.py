"""No checkpoint is written during the run, so checksums can't show whether the weights change."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_rules import Prediction
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem
from grpo_watch.preflight.predict import predict

NAME = "no-checkpoints"
NEVER = -1


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One note if saving is off, or if the interval is longer than half of the predicted run."""
    if name := settings.name_of("save_steps"):
        if settings.whole(name) == NEVER:
            yield _problem(settings, name, f"{name} is -1: no checkpoint is ever written")
    elif settings.facts.on_trainer:
        yield from _on_trainer(settings)


def _on_trainer(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A comparison takes two checkpoints."""
    strategy, every = settings.word("save_strategy"), settings.number("save_steps") or 0
    prediction = predict(settings)
    total = prediction.max_steps if prediction else None
    if strategy == "no":
        yield _problem(settings, "save_strategy", "save_strategy is no: no checkpoint is ever written")
    elif strategy == "steps" and total and every > total / 2:
        yield _problem(
            settings, "save_steps", f"save_steps is {every:g} of {total} steps: no two checkpoints to compare"
        )
    elif strategy == "epoch" and (epochs := _epochs(settings, prediction)) is not None and epochs < 2:  # noqa: PLR2004
        text = f"save_strategy is epoch and the run has {epochs:.3g} epochs: no two checkpoints to compare"
        yield _problem(settings, "save_strategy", text)


def _epochs(settings: LaunchSettings, prediction: Prediction | None) -> float | None:
    """Passes over the dataset: as predicted if max_steps ends the run, else as set."""
    if (settings.number("max_steps") or 0) <= 0:
        return settings.number("num_train_epochs")
    if prediction is None or not prediction.max_steps or not prediction.steps_per_epoch:
        return None
    return prediction.max_steps / prediction.steps_per_epoch


def _problem(settings: LaunchSettings, name: str, message: str) -> LaunchProblem:
    hint = "save at least twice in the first tenth of the run; save_total_limit limits the disk space"
    return LaunchProblem(NAME, Severity.INFO, message, hint, settings.where(name))
