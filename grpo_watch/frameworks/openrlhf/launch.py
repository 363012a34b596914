"""OpenRLHF: the rules that its settings break, and its two totals, rollouts and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.detectors.shared.batch_plan import PromptPlan
from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, devices
from grpo_watch.frameworks.launches import LaunchSettings

WHEN, LOADED = "when the arguments are parsed", "when DeepSpeed takes the models over"
GROUPED = frozenset({"group_norm", "dr_grpo", "rloo", "reinforce_baseline"})
"""Advantage estimators that compare the answers of one prompt."""
BATCH, ROLLOUT, GROUP = "train.batch_size", "rollout.batch_size", "rollout.n_samples_per_prompt"
SCHEDULE = "the shown step counts rollouts; the learning rate's schedule counts optimizer steps per epoch as"
ESTIMATOR, FILTERED, ASYNC = "algo.advantage.estimator", "algo.dynamic_filtering_enable", "train.async_enable"
TRAIN_MICRO, DYNAMIC = "train.micro_batch_size", "train.dynamic_batch_enable"
MICRO, GENERATED = "rollout.micro_batch_size", "rollout.vllm_generate_batch_size"
PASSES, SPLIT = ("train.num_episodes", "train.max_epochs"), ("ds.ring_attn_size", "ds.tensor_parallel_size")
DEVICES = ("actor.num_gpus_per_node", "actor.num_nodes")


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    group, estimator = settings.product(GROUP), settings.word(ESTIMATOR)
    if estimator in GROUPED and group < 2:  # noqa: PLR2004  a group of one has nothing to compare
        text = f"{estimator} requires n_samples_per_prompt > 1"
        yield BrokenConstraint(text, WHEN, f"set {settings.own_name(GROUP)} to 4 or more", (GROUP, ESTIMATOR))
    if settings.flag(FILTERED) and group < 2:  # noqa: PLR2004
        text = "n_samples_per_prompt must be greater than 1 when using dynamic filtering"
        yield BrokenConstraint(text, WHEN, f"set {settings.own_name(GROUP)} to 4 or more", (GROUP,))
    rollout = settings.product(ROLLOUT)
    generated = settings.whole(GENERATED)
    if generated and generated > rollout and not settings.flag(ASYNC):
        text = "rollout.vllm_generate_batch_size > rollout.batch_size requires train.async_enable"
        yield BrokenConstraint(text, WHEN, f"lower {GENERATED}", (GENERATED,))
    yield from _spread(settings, rollout * group)
    yield from _accumulated(settings)


def copies(settings: LaunchSettings) -> int:
    """Copies of the actor that share a batch."""
    ring, tensor = (settings.whole(name) or 1 for name in SPLIT)
    return (devices(settings, *DEVICES) or 1) // (ring * tensor)


def _spread(settings: LaunchSettings, completions: int) -> Iterator[BrokenConstraint]:
    """Broken if an actor process gets no batch of samples."""
    micro, actors = settings.product(MICRO), copies(settings)
    if completions // micro < actors:
        text = "The number of sample batches must be greater than or equal to the effective number of actor processes."
        fix = f"make {ROLLOUT} x {GROUP} / rollout.micro_batch_size at least {actors}"
        yield BrokenConstraint(text, WHEN, fix, (ROLLOUT, GROUP, MICRO))


def _accumulated(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    """Broken if the batch is not whole micro-batches of every process: DeepSpeed rounds the accumulation down."""
    ring, tensor = (settings.whole(name) or 1 for name in SPLIT)
    micro, count = settings.whole(TRAIN_MICRO), devices(settings, *DEVICES)
    if micro is None or count is None or tensor > 1 or settings.flag(DYNAMIC):
        return
    batch = (settings.product(BATCH)) * ring
    steps = batch // micro // count
    text = f"Gradient accumulation steps: {steps} has to be greater than 0"
    if steps:
        text = "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        text += f"gradient_acc_step * world_size {batch} != {micro} * {steps} * {count}"
    if batch != micro * steps * count:
        fix = f"make {settings.own_name(BATCH)} a multiple of {settings.own_name(TRAIN_MICRO)} x {count // ring}"
        yield BrokenConstraint(text, LOADED, fix, (BATCH, TRAIN_MICRO))


def _run(settings: LaunchSettings) -> Prediction | None:
    """The run with both totals: the shown step counts rollouts, the schedule's total counts optimizer steps."""
    batch, rollout, group = (settings.whole(name) or 1 for name in (BATCH, ROLLOUT, GROUP))
    episodes, passes = settings.product("train.num_episodes"), settings.product("train.max_epochs")
    rows = settings.dataset_size
    words = ("rollout", "episodes")
    plan = None if rows is None else PromptPlan(rows, rollout, episodes, keeps_rest=True, words=words)
    total = None if plan is None else plan.max_steps
    found = Prediction.in_prompts(rollout, group, rollout * group / batch * passes, plan, total)
    if rows is None:
        return found
    notes = (f"{SCHEDULE} {rows} x {group} / {batch}, in all {rows * group // batch * episodes * passes}",)
    return replace(found, completions=rows * group * episodes, notes=notes)


LAUNCHES = {
    "openrlhf": OwnArithmetic(
        _broken,
        _run,
        counts=(BATCH, ROLLOUT, GROUP, MICRO, TRAIN_MICRO, GENERATED, *PASSES, *SPLIT),
        words=(ESTIMATOR, FILTERED, ASYNC, DYNAMIC),
        devices=DEVICES,
    )
}
