"""verl: the rules that its settings break, in the configuration and in its workers, and its number of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.detectors.shared.batch_plan import PromptPlan
from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, devices
from grpo_watch.frameworks.launches import LaunchSettings, at_least

STARTED = "when the actor's workers start, before the model is loaded"
LOADED = "when the rollout engine is built, after the model was loaded"
UPDATED = "at the first update, after the model was loaded and the first rollout generated"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MINI, MICRO = f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_micro_batch_size"
BATCH, GROUP, PER_GPU = "data.train_batch_size", f"{ROLLOUT}.n", f"{MICRO}_per_gpu"
ULYSSES, DYNAMIC = f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.use_dynamic_bsz"
SPLIT = tuple(f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
ENGINE = tuple(f"{ROLLOUT}.{name}_parallel_size" for name in ("tensor_model", "data", "pipeline_model"))
POOLS = ("rollout.n_gpus_per_node", "rollout.nnodes", "trainer.v1.trainer_mode")
COUNTS = (BATCH, GROUP, MINI, MICRO, PER_GPU, ULYSSES, *SPLIT, *ENGINE)
SHARED = frozenset({"", "sync", "colocate_async"})
"""Modes of the trainer in which the actor and the rollout engine share all GPUs."""
FULLY_SHARDED = frozenset({"fsdp", "fsdp2"})


def strategy(settings: LaunchSettings) -> str:
    """How the actor is split: ``fsdp``, ``fsdp2``, ``megatron``, …; ``model_engine`` chooses the configuration."""
    engine = settings.word("model_engine")
    if settings.given(f"{ACTOR}.strategy") is not None or engine in {"", "dp"}:
        return settings.word(f"{ACTOR}.strategy")
    return engine


def broken_by_workers(settings: LaunchSettings, count: int) -> Iterator[BrokenConstraint]:
    """Every rule of the workers that the settings break on ``count`` GPUs."""
    apart = any(settings.given(name) is not None for name in POOLS[:2])
    if apart or settings.word(POOLS[2]) not in SHARED:
        return  # the rollout engine has GPUs of its own
    yield from _engine(settings, count)
    samples, copies = settings.product(MINI, GROUP), _copies(settings, count)
    if copies is None:
        return
    if at_least(settings.version, "0.8"):
        yield from _update(settings, samples, copies)
    elif strategy(settings) in FULLY_SHARDED:
        yield from _normalised(settings, samples, copies)


def _engine(settings: LaunchSettings, count: int) -> Iterator[BrokenConstraint]:
    """Broken if the GPUs don't hold whole copies of the rollout engine, which spans two GPUs by default."""
    if strategy(settings) not in FULLY_SHARDED and settings.given(ENGINE[0]) is None:
        return  # Megatron's configuration had a default of its own in some versions
    tensor, data, pipeline = (settings.whole(name) or 1 for name in ENGINE)
    newer = at_least(settings.version, "0.6")
    width, word = (tensor * data * pipeline, "infer_world_size") if newer else (tensor, "infer_tp")
    if count % width:
        text = f"rollout world_size: {count} is not divisible by {word}: {width}"
        yield BrokenConstraint(text, LOADED, f"set {ENGINE[0]} to a divisor of {count}", ENGINE)


def _copies(settings: LaunchSettings, count: int) -> int | None:
    """Copies of the actor that share a mini-batch; None if unknown or no whole number."""
    kind, split = strategy(settings), settings.product(ULYSSES)
    if kind == "megatron":
        split = settings.product(*SPLIT)
    elif kind not in FULLY_SHARDED:
        return None
    return None if count % split else count // split


def _normalised(settings: LaunchSettings, samples: int, copies: int) -> Iterator[BrokenConstraint]:
    """Rules before 0.8: each process took its share, rounded down, whether batches are dynamic or not."""
    own, micro = samples // copies, settings.whole(MICRO)
    per_gpu = settings.whole(PER_GPU) if micro is None else micro // copies
    fix = f"make {MINI} x {GROUP} / {copies} a multiple of {PER_GPU}"
    if own == 0:
        text = "ppo_mini_batch_size 0 should be larger than 0 after normalization"
        yield BrokenConstraint(text, STARTED, f"raise {MINI} x {GROUP} to {copies} or more", (MINI, GROUP))
    elif per_gpu and own % per_gpu:
        text = f"normalized ppo_mini_batch_size {own} should be divisible by ppo_micro_batch_size_per_gpu {per_gpu}"
        yield BrokenConstraint(text, STARTED, fix, (PER_GPU, MINI, GROUP))


def _update(settings: LaunchSettings, samples: int, copies: int) -> Iterator[BrokenConstraint]:
    """Rules from 0.8 on: nothing is rounded; shares are whole, and hold whole micro-batches."""
    per_gpu, rounded = settings.whole(PER_GPU), ""
    if settings.launch.version is None:
        rounded = "versions before 0.8 round the share of a process down"
    if samples % copies:
        text = f"Got mini_batch_size={samples} and self.engine.get_data_parallel_size()={copies}"
        yield BrokenConstraint(text, UPDATED, f"make {MINI} x {GROUP} a multiple of {copies}", (MINI, GROUP), rounded)
        return
    own = samples // copies
    if per_gpu and own % per_gpu and not settings.flag(DYNAMIC):
        text = "data size must be divisible by force_group_size * micro_batch_size_per_gpu"
        fix = f"{MINI} x {GROUP} / {copies} = {own}: make {PER_GPU} a divisor of it"
        yield BrokenConstraint(
            text, UPDATED, fix, (PER_GPU, MINI, GROUP), rounded if strategy(settings) == "megatron" else ""
        )
    taken = settings.product(BATCH, GROUP) // copies
    if taken % own and not settings.flag("trainer.use_v1"):
        fix = f"make {BATCH} a multiple of {MINI}"
        yield BrokenConstraint(f"{taken} % {own} != 0", UPDATED, fix, (MINI, BATCH))


WHEN = "when the configuration is validated, before the workers start"
DEVICES = ("trainer.n_gpus_per_node", "trainer.nnodes")
PASSES = ("data.gen_batch_size", "trainer.total_epochs", "trainer.total_training_steps", f"{ACTOR}.ppo_epochs")
USES_KL = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
LOG_PROBS = tuple(f"actor_rollout_ref.{part}.log_prob_micro_batch_size" for part in ("ref", "rollout"))


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    count = devices(settings, *DEVICES)
    if not settings.flag(DYNAMIC):
        yield from _validated(settings, count)
    if count is not None:
        yield from broken_by_workers(settings, count)


def _validated(settings: LaunchSettings, count: int | None) -> Iterator[BrokenConstraint]:
    """Reasons to refuse the configuration; with dynamic batch sizes none of them is checked."""
    batch, mini = settings.product(BATCH), settings.product(MINI)
    if count is not None:
        yield from _over_devices(settings, batch * (settings.product(GROUP)), count)
    if batch < mini:
        text = f"train_batch_size ({batch}) must be >= actor.ppo_mini_batch_size ({mini})"
        yield BrokenConstraint(text, WHEN, f"lower {MINI} to {batch} or raise {BATCH}", (MINI, BATCH))
    yield from _micro(settings, mini, count)
    yield from _log_probs(settings)


def _over_devices(settings: LaunchSettings, completions: int, count: int) -> Iterator[BrokenConstraint]:
    """Broken if the rollout batch does not spread over the devices, or over Megatron's copies in micro-batches."""
    least = count
    if strategy(settings) == "megatron":
        tensor, pipeline, context = (settings.product(name) for name in SPLIT)
        split = tensor * pipeline * context
        if count % split:
            text = f"n_gpus ({count}) must be divisible by model_parallel_size ({tensor * pipeline}) times "
            fix = f"make the product of the three parallel sizes a divisor of {count}"
            yield BrokenConstraint(f"{text}context_parallel_size ({context})", WHEN, fix, SPLIT)
            return
        least = count // split * settings.product(PER_GPU)
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
        split = settings.product(ULYSSES)
        if mini % micro:
            text = f"ppo_mini_batch_size ({mini}) must be divisible by ppo_micro_batch_size ({micro})"
            yield BrokenConstraint(text, WHEN, f"make {MICRO} a divisor of {mini}", (MICRO, MINI))
        elif count is not None and micro * split < count:
            text = f"ppo_micro_batch_size ({micro}) * ulysses_sequence_parallel_size ({split}) must be >= n_gpus "
            yield BrokenConstraint(f"{text}({count})", WHEN, f"use {PER_GPU} instead", (MICRO,))


def _log_probs(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """The micro-batch for log-probabilities has no default; the reference's is required only with a KL penalty."""
    needed = LOG_PROBS if any(settings.flag(name) for name in USES_KL) else LOG_PROBS[1:]
    for name in needed:
        if settings.given(name) is None and settings.given(f"{name}_per_gpu") is None:
            part = name.removesuffix(".log_prob_micro_batch_size")
            text = f"[{part}] Please set at least one of '{name}' or '{name}_per_gpu'."
            yield BrokenConstraint(text, WHEN, f"set {name}_per_gpu, or {DYNAMIC}=True", (f"{name}_per_gpu",))


def _run(settings: LaunchSettings) -> Prediction | None:
    """Steps: whole rollout batches per epoch times the epochs, unless total_training_steps says otherwise."""
    batch, group = settings.product(BATCH), settings.product(GROUP)
    drawn = batch if at_least(settings.version, "0.9") else settings.whole("data.gen_batch_size") or batch
    rows, epochs = settings.dataset_size, settings.product("trainer.total_epochs")
    plan = None if rows is None else PromptPlan(rows, drawn, epochs)
    total, formula = settings.whole("trainer.total_training_steps"), ""
    if total is not None:
        formula = f"trainer.total_training_steps = {total}, as set"
    elif plan is not None:
        total = plan.max_steps
    updates = -(-batch // settings.product(MINI)) * settings.product(f"{ACTOR}.ppo_epochs")
    notes = ("prompts longer than data.max_prompt_length are filtered before they are counted",)
    return replace(Prediction.in_prompts(batch, group, updates, plan, total, formula), notes=notes)


LAUNCHES = {
    "verl": OwnArithmetic(
        _broken,
        _run,
        counts=(*COUNTS, *PASSES, *LOG_PROBS, *(f"{name}_per_gpu" for name in LOG_PROBS)),
        words=(DYNAMIC, f"{ACTOR}.strategy", "model_engine", "config_name", "trainer.use_v1", *POOLS, *USES_KL),
        devices=DEVICES,
    )
}
