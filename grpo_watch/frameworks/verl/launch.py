"""verl: from its settings to the rules that they break and to its number of steps (one step is one rollout batch)."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.detectors.shared.prompt_plan import PromptPlan
from grpo_watch.frameworks.launch_rules import (
    BrokenConstraint,
    OwnArithmetic,
    Prediction,
    devices,
    devices_unread,
    unread,
)
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.frameworks.verl.workers import (
    ACTOR,
    BATCH,
    COUNTS,
    DYNAMIC,
    GROUP,
    MICRO,
    MINI,
    PER_GPU,
    POOLS,
    SPLIT,
    ULYSSES,
    strategy,
)
from grpo_watch.frameworks.verl.workers import broken as broken_by_workers

WHEN = "when the configuration is validated, before the workers start"
DEVICES = ("trainer.n_gpus_per_node", "trainer.nnodes")
PASSES = ("data.gen_batch_size", "trainer.total_epochs", "trainer.total_training_steps", f"{ACTOR}.ppo_epochs")
USES_KL = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
LOG_PROBS = tuple(f"actor_rollout_ref.{part}.log_prob_micro_batch_size" for part in ("ref", "rollout"))


def lacking(settings: LaunchSettings) -> Iterator[str]:
    """What has to be known before a rule can be judged or a step predicted."""
    log_probs = (*LOG_PROBS, *(f"{name}_per_gpu" for name in LOG_PROBS))
    words = (DYNAMIC, f"{ACTOR}.strategy", "model_engine", "config_name", "trainer.use_v1", *POOLS, *USES_KL)
    yield from unread(settings, (*COUNTS, *PASSES, *log_probs), words)
    yield from devices_unread(settings, *DEVICES)


def broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """Every rule that the settings break; none where something they hang on is not known (see ``lacking``)."""
    if any(lacking(settings)):
        return
    count = devices(settings, *DEVICES)
    if not settings.flag(DYNAMIC):
        yield from _validated(settings, count)
    if count is not None:
        yield from broken_by_workers(settings, count)


def _validated(settings: LaunchSettings, count: int | None) -> Iterator[BrokenConstraint]:
    """What the configuration is refused for; with dynamic batch sizes none of it is checked."""
    batch, mini = settings.whole(BATCH) or 1, settings.whole(MINI) or 1
    if count is not None:
        yield from _over_devices(settings, batch * (settings.whole(GROUP) or 1), count)
    if batch < mini:
        text = f"train_batch_size ({batch}) must be >= actor.ppo_mini_batch_size ({mini})"
        yield BrokenConstraint(text, WHEN, f"lower {MINI} to {batch} or raise {BATCH}", (MINI, BATCH))
    yield from _micro(settings, mini, count)
    yield from _log_probs(settings)


def _over_devices(settings: LaunchSettings, completions: int, count: int) -> Iterator[BrokenConstraint]:
    """The rollout batch has to spread over the devices, or over Megatron's copies in whole micro-batches."""
    least = count
    if strategy(settings) == "megatron":
        tensor, pipeline, context = (settings.whole(name) or 1 for name in SPLIT)
        if count % (tensor * pipeline * context):
            text = f"n_gpus ({count}) must be divisible by model_parallel_size ({tensor * pipeline}) times "
            fix = f"make the product of the three parallel sizes a divisor of {count}"
            yield BrokenConstraint(f"{text}context_parallel_size ({context})", WHEN, fix, SPLIT)
            return
        least = count // (tensor * pipeline * context) * (settings.whole(PER_GPU) or 1)
    if completions % least:
        text = f"real_train_batch_size ({completions}) must be divisible by minimal possible batch size ({least})"
        yield BrokenConstraint(text, WHEN, f"make {BATCH} x {GROUP} a multiple of {least}", (BATCH, GROUP))


def _micro(settings: LaunchSettings, mini: int, count: int | None) -> Iterator[BrokenConstraint]:
    micro, per_gpu = settings.whole(MICRO), settings.whole(PER_GPU)
    if micro is None and per_gpu is None:
        text = (
            "[actor] Please set at least one of 'actor.ppo_micro_batch_size' or 'actor.ppo_micro_batch_size_per_gpu' "
            "if use_dynamic_bsz is not enabled."
        )
        yield BrokenConstraint(text, WHEN, f"set {PER_GPU}, or {DYNAMIC}=True", (PER_GPU,))
    elif micro is not None and per_gpu is None:
        split = settings.whole(ULYSSES) or 1
        if mini % micro:
            text = f"ppo_mini_batch_size ({mini}) must be divisible by ppo_micro_batch_size ({micro})"
            yield BrokenConstraint(text, WHEN, f"make {MICRO} a divisor of {mini}", (MICRO, MINI))
        elif count is not None and micro * split < count:
            text = f"ppo_micro_batch_size ({micro}) * ulysses_sequence_parallel_size ({split}) must be >= n_gpus "
            yield BrokenConstraint(f"{text}({count})", WHEN, f"use {PER_GPU} instead", (MICRO,))


def _log_probs(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """The micro-batch of the passes for log-probabilities has no default; the reference's only with a KL penalty."""
    needed = LOG_PROBS if any(settings.flag(name) for name in USES_KL) else LOG_PROBS[1:]
    for name in needed:
        if settings.given(name) is None and settings.given(f"{name}_per_gpu") is None:
            part = name.removesuffix(".log_prob_micro_batch_size")
            text = f"[{part}] Please set at least one of '{name}' or '{name}_per_gpu'."
            yield BrokenConstraint(text, WHEN, f"set {name}_per_gpu, or {DYNAMIC}=True", (f"{name}_per_gpu",))


def predict(settings: LaunchSettings) -> Prediction | None:
    """Steps: whole rollout batches per epoch times the epochs, unless total_training_steps says otherwise."""
    if any(lacking(settings)) or any(broken(settings)):
        return None
    batch, group = settings.whole(BATCH) or 1, settings.whole(GROUP) or 1
    drawn = batch if at_least(settings.version, "0.9") else settings.whole("data.gen_batch_size") or batch
    rows, epochs = settings.dataset_size, settings.whole("trainer.total_epochs") or 1
    plan = None if rows is None else PromptPlan(rows, drawn, epochs)
    total, formula = settings.whole("trainer.total_training_steps"), ""
    if total is not None:
        formula = f"trainer.total_training_steps = {total}, as set"
    elif plan is not None:
        total = plan.max_steps
        formula = f"{plan.formula} = {total or 0}"
    mini, passes = settings.whole(MINI) or 1, settings.whole(f"{ACTOR}.ppo_epochs") or 1
    return Prediction(
        max_steps=total or None,
        steps_per_epoch=None if plan is None else plan.steps_per_epoch,
        completions_per_step=batch * group,
        prompts_per_step=batch,
        generation_batch_size=batch * group,
        optimizer_steps_per_generation=-(-batch // mini) * passes,
        formula=formula,
        completions=None if not total else total * batch * group,
        notes=("prompts longer than data.max_prompt_length are filtered before they are counted",),
    )


LAUNCHES = {"verl": OwnArithmetic(broken, predict, lacking)}
