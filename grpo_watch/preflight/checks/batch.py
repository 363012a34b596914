"""Sizes of groups, batches and datasets that the framework's version refuses, or accepts silently and mishandles."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_rules import (
    BATCH_SETTINGS,
    BrokenConstraint,
    LaunchBatch,
    OnTrainer,
    Refusal,
    RefusalKind,
    batch_of,
    factors,
    refusals,
    rules_of,
)
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem, critical, warning

MICRO, STEPS, TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"


def _refused(settings: LaunchSettings, *kinds: RefusalKind) -> Iterator[tuple[LaunchBatch, Refusal]]:
    batch = batch_of(settings)
    if batch is not None:
        yield from ((batch, refusal) for refusal in refusals(batch) if refusal.kind in kinds)


def batch_not_divisible(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The generation batch does not hold whole groups; ``group-size-one`` covers a group of one."""
    for batch, refusal in _refused(settings, RefusalKind.GROUPS, RefusalKind.PROCESS_GROUPS):
        if batch.num_generations > 1:
            message, hint = _whole_groups(settings, batch, refusal)
            where = settings.where("num_generations", *BATCH_SETTINGS)
            yield critical(f"{message}; refused {refusal.stage.value}", hint, where, refusal.text)


def _whole_groups(settings: LaunchSettings, batch: LaunchBatch, refusal: Refusal) -> tuple[str, str]:
    """The message, with its numbers, and the hint."""
    parts = refusal.factors or factors(batch)
    names = " x ".join(settings.own_name(name) for name, _ in parts)
    product, size = " x ".join(str(value) for _, value in parts), math.prod(value for _, value in parts)
    counted = f"{product} = {size}" if len(parts) > 1 else product
    if refusal.kind is RefusalKind.GROUPS:
        multiple = f"make {names} a multiple of {settings.own_name('num_generations')}"
        return f"{counted} completions are not whole groups of {batch.num_generations}", multiple
    wanted = f"{batch.num_generations} x {batch.world_size} processes = {batch.num_generations * batch.world_size}"
    return f"{counted} completions are fewer than one group per process, {wanted}", f"raise {names} to at least that"


def eval_batch_not_divisible(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The run evaluates, and the version refuses the evaluation batch."""
    for batch, refusal in _refused(settings, RefusalKind.EVAL_GROUPS):
        name = settings.own_name("per_device_eval_batch_size")
        size = f"{batch.per_device_eval_batch_size} per device x {batch.world_size} processes"
        yield critical(
            f"the evaluation batch of {size} does not hold whole groups; refused {refusal.stage.value}",
            f"set {name} to {batch.num_generations_eval or batch.num_generations}, or eval_strategy to no",
            settings.where("per_device_eval_batch_size", "num_generations_eval", "eval_strategy"),
            refusal.text,
        )


def generation_settings_conflict(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The version refuses the pair; ms-swift from 4.2 on only if they disagree."""
    for _, refusal in _refused(settings, RefusalKind.BOTH_SET, RefusalKind.UNEQUAL):
        both = f"{settings.own_name('generation_batch_size')} and {settings.own_name('steps_per_generation')}"
        message = f"{both} are both set; refused {refusal.stage.value}"
        where = settings.where("generation_batch_size", "steps_per_generation")
        yield critical(message, "remove one of the two", where, refusal.text)


def generation_batch_not_multiple(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The version refuses the batch, or accepts it by mistake and splits groups."""
    batch = batch_of(settings)
    if batch is None or not batch.generation_batch_size or batch.steps_per_generation:
        return
    refused = next((each for _, each in _refused(settings, RefusalKind.GLOBAL_BATCH, RefusalKind.NO_BATCH)), None)
    if refused is None and batch.generation_batch_size % batch.global_batch == 0:
        return
    whole = math.lcm(batch.global_batch, batch.num_generations)
    nearest = max(1, round(batch.generation_batch_size / whole)) * whole
    factor = f"{batch.per_device_train_batch_size} per device x {batch.world_size} processes = {batch.global_batch}"
    outcome = f"refused {refused.stage.value}" if refused else "this version doesn't notice and splits groups"
    yield critical(
        f"generation_batch_size {batch.generation_batch_size} is not a multiple of {factor}; {outcome}",
        f"set generation_batch_size to {nearest}, or leave it out",
        settings.where("generation_batch_size"),
        refused.text if refused else "",
    )


def group_size_one(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The group size is known to be 1 or less; a teacher's signal (ms-swift) needs no group."""
    name = settings.name_of("group")
    group = settings.number(name) if name else None
    elsewhere = settings.given(name) is None and settings.unreadable("config_name")  # verl's --config-name sets it
    taught = any(settings.given(signal) is not None for signal in settings.facts.needs_no_group)
    if group is None or group > 1 or elsewhere or taught:
        return
    batch = batch_of(settings)
    first = next(iter(refusals(batch)), None) if batch else None
    when = f"refused {first.stage.value}" if first else "the framework accepts it and learns nothing"
    yield critical(
        f"{settings.own_name(name)} is {group:g}: an advantage compares the completions of one prompt; {when}",
        f"set {settings.own_name(name)} to 4 or more (8 is usual)",
        settings.where(name),
        first.text if first else "",
    )


def dataset_too_small(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The number of rows is known, and they don't fill one generation batch."""
    where = settings.launch.dataset_size.origin if settings.launch.dataset_size else ""
    rules = rules_of(settings)
    if not isinstance(rules, OnTrainer):
        prediction = rules.predict(settings)
        if prediction is not None and prediction.steps_per_epoch == 0:
            message = f"{settings.dataset_size} prompts do not fill one batch: an epoch has no steps"
            yield critical(message, "use more prompts, or lower the prompts per step", where)
        return
    for batch, refusal in _refused(settings, RefusalKind.NO_STEPS, RefusalKind.NOTHING_DRAWN):
        silent = refusal.kind is RefusalKind.NOTHING_DRAWN
        how = "training ends at once, without a step and without an error" if silent else "training does not begin"
        yield critical(
            f"{batch.dataset_size} prompts are fewer than the {batch.prompts} of one generation batch: {how}",
            "use more prompts, or lower gradient_accumulation_steps or steps_per_generation",
            where,
            refusal.text,
        )


def framework_constraint(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per rule of the framework, or of DeepSpeed below it, that the settings break."""
    rules = rules_of(settings)
    for broken in _deepspeed(settings) if isinstance(rules, OnTrainer) else rules.broken(settings):
        yield LaunchProblem(
            Severity.WARNING if broken.unsure else Severity.CRITICAL,
            f"refused {broken.when}: {broken.text}{f' ({broken.unsure})' if broken.unsure else ''}",
            broken.fix,
            broken.where or settings.where(*broken.settings),
            broken.text,
        )


def _deepspeed(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """One broken rule for DeepSpeed's batch sizes that differ from the trainer's; none if the batch is unknown."""
    batch = batch_of(settings)
    if batch is None or batch.configured_per_device is not None:
        return
    expected = {
        STEPS: ("gradient_accumulation_steps", batch.gradient_accumulation_steps),
        MICRO: ("per_device_train_batch_size", batch.per_device_train_batch_size),
        TOTAL: ("train_batch_size (calculated)", batch.global_batch * batch.gradient_accumulation_steps),
    }
    given = {name: value for name, value in settings.launch.deepspeed.items() if name in expected}
    numbers = {name: each.value for name, each in given.items() if isinstance(each.value, int | float)}  # or "auto"
    wrong = [name for name in expected if name in numbers and numbers[name] != expected[name][1]]
    if wrong:
        lines = (f"- ds {name}={given[name].value} vs hf {expected[name][0]}={expected[name][1]}" for name in wrong)
        text = "Please correct the following DeepSpeed config values that mismatch TrainingArguments values: "
        fix = f'set {" and ".join(wrong)} to "auto" in the DeepSpeed configuration'
        when = "when training begins, after the model was loaded"
        yield BrokenConstraint(text + " ".join(lines), when, fix, (), where=given[wrong[0]].origin)


def unsloth_changes_batch(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """Unsloth's patch of the configuration will replace the per-device batch."""
    batch = batch_of(settings)
    if batch is None or batch.configured_per_device is None:
        return
    old, new = batch.configured_per_device, batch.per_device_train_batch_size
    yield warning(
        f"{settings.framework.capitalize()} will train with {new} completions per device instead of {old}: memory and "
        "max_steps change with it",
        f"set per_device_train_batch_size to {new}, or make batch x accumulation x processes a multiple of the group",
        settings.where("per_device_train_batch_size", "num_generations"),
        f"We will change the batch size of {old} to the `num_generations` of {batch.num_generations}",
    )


CHECKS = (
    batch_not_divisible,
    dataset_too_small,
    eval_batch_not_divisible,
    framework_constraint,
    generation_batch_not_multiple,
    generation_settings_conflict,
    group_size_one,
    unsloth_changes_batch,
)
