"""The dataset has fewer prompts than one generation batch, so there is nothing to train on."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import OnTrainer, batch_of, refusals, rules_of
from grpo_watch.frameworks.launch_rules import Prediction, RefusalKind
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "dataset-too-small"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the number of rows is known and they don't fill one batch."""
    rules = rules_of(settings)
    if not isinstance(rules, OnTrainer):
        yield from _own(settings, rules.predict(settings))
        return
    batch = batch_of(settings)
    for refusal in refusals(batch) if batch else ():
        if refusal.kind in {RefusalKind.NO_STEPS, RefusalKind.NOTHING_DRAWN} and batch:
            silent = refusal.kind is RefusalKind.NOTHING_DRAWN
            how = "training ends at once, without a step and without an error" if silent else "training does not begin"
            yield LaunchProblem(
                NAME,
                Severity.CRITICAL,
                f"{batch.prompts} prompts are fewer than the {batch.plan().prompts} of one generation batch: {how}",
                "use more prompts, or lower gradient_accumulation_steps or steps_per_generation",
                settings.launch.dataset_size.origin if settings.launch.dataset_size else "",
                refusal.text,
            )


def _own(settings: LaunchSettings, prediction: Prediction | None) -> Iterator[LaunchProblem]:
    if prediction is not None and prediction.steps_per_epoch == 0:
        where = settings.launch.dataset_size.origin if settings.launch.dataset_size else ""
        message = f"{settings.dataset_size} prompts do not fill one batch: an epoch has no steps"
        yield LaunchProblem(NAME, Severity.CRITICAL, message, "use more prompts, or lower the prompts per step", where)
