"""verl: what its workers refuse when they split the batch and the engine over the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_rules import BrokenConstraint
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


def broken(settings: LaunchSettings, count: int) -> Iterator[BrokenConstraint]:
    """Every rule of the workers that the settings break on ``count`` GPUs."""
    apart = any(settings.given(name) is not None for name in POOLS[:2])
    if apart or settings.word(POOLS[2]) not in SHARED:
        return  # the rollout engine has GPUs of its own
    yield from _engine(settings, count)
    samples, copies = (settings.whole(MINI) or 1) * (settings.whole(GROUP) or 1), _copies(settings, count)
    if copies is None:
        return
    if at_least(settings.version, "0.8"):
        yield from _update(settings, samples, copies)
    elif strategy(settings) in FULLY_SHARDED:
        yield from _normalised(settings, samples, copies)


def _engine(settings: LaunchSettings, count: int) -> Iterator[BrokenConstraint]:
    """The GPUs have to hold whole copies of the rollout engine, whose default is two GPUs wide."""
    if strategy(settings) not in FULLY_SHARDED and settings.given(ENGINE[0]) is None:
        return  # Megatron's configuration had a default of its own in some versions
    tensor, data, pipeline = (settings.whole(name) or 1 for name in ENGINE)
    newer = at_least(settings.version, "0.6")
    width, word = (tensor * data * pipeline, "infer_world_size") if newer else (tensor, "infer_tp")
    if count % width:
        text = f"rollout world_size: {count} is not divisible by {word}: {width}"
        yield BrokenConstraint(text, LOADED, f"set {ENGINE[0]} to a divisor of {count}", ENGINE)


def _copies(settings: LaunchSettings, count: int) -> int | None:
    """Copies of the actor that share a mini-batch; None where that is not known, or no whole number."""
    kind, split = strategy(settings), settings.whole(ULYSSES) or 1
    if kind == "megatron":
        split = 1
        for name in SPLIT:
            split *= settings.whole(name) or 1
    elif kind not in FULLY_SHARDED:
        return None
    return None if count % split else count // split


def _normalised(settings: LaunchSettings, samples: int, copies: int) -> Iterator[BrokenConstraint]:
    """Before 0.8 each process took its share, rounded down, whether batches are dynamic or not."""
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
    """From 0.8 on nothing is rounded: shares are whole, and hold whole micro-batches."""
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
    taken = (settings.whole(BATCH) or 1) * (settings.whole(GROUP) or 1) // copies
    if taken % own and not settings.flag("trainer.use_v1"):
        fix = f"make {BATCH} a multiple of {MINI}"
        yield BrokenConstraint(f"{taken} % {own} != 0", UPDATED, fix, (MINI, BATCH))
