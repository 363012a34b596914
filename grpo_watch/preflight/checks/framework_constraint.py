"""The framework, or DeepSpeed below it, refuses the combination of batch sizes."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.frameworks.launch_batch import OnTrainer, batch_of, rules_of
from grpo_watch.frameworks.launch_rules import BrokenConstraint
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "framework-constraint"
WHEN = "when training begins, after the model was loaded"
MICRO, STEPS, TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per rule of the framework that the settings break."""
    rules = rules_of(settings)
    for broken in _deepspeed(settings) if isinstance(rules, OnTrainer) else rules.broken(settings):
        yield LaunchProblem(
            NAME,
            Severity.WARNING if broken.unsure else Severity.CRITICAL,
            f"refused {broken.when}: {broken.text}{f' ({broken.unsure})' if broken.unsure else ''}",
            broken.fix,
            broken.where or settings.where(*broken.settings),
            broken.text,
        )


def _deepspeed(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """DeepSpeed's batch sizes that are not the trainer's, as one rule; none where the batch is not known."""
    batch = batch_of(settings)
    if batch is None or batch.configured_per_device is not None:
        return
    expected = {
        STEPS: ("gradient_accumulation_steps", batch.accumulation),
        MICRO: ("per_device_train_batch_size", batch.per_device),
        TOTAL: ("train_batch_size (calculated)", batch.global_batch * batch.accumulation),
    }
    given = {name: value for name, value in settings.launch.deepspeed.items() if name in expected}
    wrong = [name for name in expected if name in given and _differs(given[name].value, expected[name][1])]
    if wrong:
        lines = (f"- ds {name}={given[name].value} vs hf {expected[name][0]}={expected[name][1]}" for name in wrong)
        text = "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: "
        fix = f'set {" and ".join(wrong)} to "auto" in the DeepSpeed configuration'
        yield BrokenConstraint(text + " ".join(lines), WHEN, fix, (), where=given[wrong[0]].origin)


def _differs(value: Scalar, expected: int) -> bool:
    """Whether a number is there, and another one; ``"auto"`` takes the trainer's."""
    return isinstance(value, int | float) and value != expected
