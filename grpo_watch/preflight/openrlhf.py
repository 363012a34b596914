"""OpenRLHF: from its settings to the rules that they break and to its two totals, rollouts and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.batch_prompts import PromptPlan
from grpo_watch.preflight.constraints import Broken
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Prediction

WHEN = "when the arguments are parsed"
GROUPED = frozenset({"group_norm", "dr_grpo", "rloo", "reinforce_baseline"})
"""Advantage estimators that compare the answers of one prompt."""
BATCH, ROLLOUT, GROUP = "train.batch_size", "rollout.batch_size", "rollout.n_samples_per_prompt"
SCHEDULE = "the shown step counts rollouts; the learning rate's schedule counts optimizer steps per epoch as"
ESTIMATOR = "algo.advantage.estimator"


def broken(settings: Settings) -> Iterator[Broken]:
    """Every rule that the settings break."""
    group, estimator = settings.whole(GROUP) or 1, settings.word(ESTIMATOR)
    if estimator in GROUPED and group < 2:  # noqa: PLR2004  a group of one has nothing to compare
        text = f"{estimator} requires n_samples_per_prompt > 1"
        yield Broken(text, WHEN, f"set {settings.own_name(GROUP)} to 4 or more", (GROUP, ESTIMATOR))
    if settings.flag("algo.dynamic_filtering_enable") and group < 2:  # noqa: PLR2004
        text = "n_samples_per_prompt must be greater than 1 when using dynamic filtering"
        yield Broken(text, WHEN, f"set {settings.own_name(GROUP)} to 4 or more", (GROUP,))
    rollout = settings.whole(ROLLOUT) or 1
    generated = settings.whole("rollout.vllm_generate_batch_size")
    if generated and generated > rollout and not settings.flag("train.async_enable"):
        text = "rollout.vllm_generate_batch_size > rollout.batch_size requires train.async_enable"
        yield Broken(text, WHEN, "lower rollout.vllm_generate_batch_size", ("rollout.vllm_generate_batch_size",))
    yield from _spread(settings, rollout * group)


def _spread(settings: Settings, completions: int) -> Iterator[Broken]:
    """Every actor process needs at least one batch of samples."""
    micro = settings.whole("rollout.micro_batch_size") or 1
    nodes, each = settings.whole("actor.num_nodes") or 1, settings.whole("actor.num_gpus_per_node") or 1
    split = (settings.whole("ds.ring_attn_size") or 1) * (settings.whole("ds.tensor_parallel_size") or 1)
    if completions // micro < nodes * each // split:
        text = "The number of sample batches must be greater than or equal to the effective number of actor processes."
        fix = f"make {ROLLOUT} x {GROUP} / rollout.micro_batch_size at least {nodes * each // split}"
        yield Broken(text, WHEN, fix, (ROLLOUT, GROUP, "rollout.micro_batch_size"))


def predict(settings: Settings) -> Prediction | None:
    """The shown step counts rollouts; the schedule's total counts optimizer steps. Both are given."""
    if any(broken(settings)):
        return None
    batch, rollout, group = (settings.whole(name) or 1 for name in (BATCH, ROLLOUT, GROUP))
    episodes, passes = settings.whole("train.num_episodes") or 1, settings.whole("train.max_epochs") or 1
    rows = settings.dataset_size
    words = ("rollout", "episodes")
    plan = None if rows is None else PromptPlan(rows, rollout, episodes, keeps_rest=True, words=words)
    scheduled = None if rows is None else rows * group // batch * episodes * passes
    return Prediction(
        max_steps=None if plan is None else plan.max_steps,
        steps_per_epoch=None if plan is None else plan.steps_per_epoch,
        completions_per_step=rollout * group,
        prompts_per_step=rollout,
        generation_batch_size=rollout * group,
        optimizer_steps_per_generation=rollout * group / batch * passes,
        formula="" if plan is None else f"{plan.formula} = {plan.max_steps or 0}",
        completions=None if rows is None else rows * group * episodes,
        notes=() if scheduled is None else (f"{SCHEDULE} {rows} x {group} / {batch}, in all {scheduled}",),
    )
