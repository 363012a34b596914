"""NeMo-RL: the rules that its settings break, and its number of steps."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.detectors.shared.batch_plan import PromptPlan
from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, devices
from grpo_watch.frameworks.launches import LaunchSettings

WHEN, TRAINED = "when the trainer is set up", "at the first update, after the first rollout"
PROMPTS, GROUP = "grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"
GLOBAL, MICRO = "policy.train_global_batch_size", "policy.train_micro_batch_size"
PENALTY, ON_POLICY = "loss_fn.reference_policy_kl_penalty", "loss_fn.force_on_policy_ratio"
SKIPS = "grpo.skip_reference_policy_logprobs_calculation"
MOST, EPOCHS = "grpo.max_num_steps", "grpo.max_num_epochs"
DEVICES = ("cluster.gpus_per_node", "cluster.num_nodes")
DTENSOR = tuple(f"policy.dtensor_cfg.{name}_parallel_size" for name in ("tensor", "context"))
MEGATRON = tuple(f"policy.megatron_cfg.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
WITH_MEGATRON, COLOCATED = "policy.megatron_cfg.enabled", "policy.generation.colocated.enabled"
BY_TOKENS = ("policy.sequence_packing.enabled", "policy.dynamic_batching.enabled")


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    completions = settings.product(PROMPTS, GROUP)
    size = settings.product(GLOBAL)
    if settings.flag(ON_POLICY) and size != completions:
        text = (
            "force_on_policy_ratio requires train_global_batch_size == num_prompts_per_step * "
            "num_generations_per_prompt"
        )
        yield BrokenConstraint(text, WHEN, f"set {GLOBAL} to {completions}", (GLOBAL, PROMPTS, GROUP))
    if completions % size:
        text = f"Total batch size ({completions}) is not a multiple of batch_size ({size})"
        yield BrokenConstraint(text, TRAINED, f"make {GLOBAL} a divisor of {completions}", (GLOBAL, PROMPTS, GROUP))
    yield from _shards(settings, size)
    skips = settings.flag(SKIPS)
    if skips and (settings.number(PENALTY) or 0) > 0:
        text = "grpo.skip_reference_policy_logprobs_calculation=True requires loss_fn.reference_policy_kl_penalty == 0"
        yield BrokenConstraint(text, WHEN, f"set {PENALTY} to 0", (PENALTY,))


def _shards(settings: LaunchSettings, size: int) -> Iterator[BrokenConstraint]:
    """Broken if an optimizer step does not spread over the model's copies in equal shares of whole micro-batches."""
    shards, micro = _copies(settings), settings.product(MICRO)
    if not shards:
        return
    if size % shards:
        text = f"Batch size ({size}) is not a multiple of shards ({shards})"
        yield BrokenConstraint(text, TRAINED, f"make {GLOBAL} a multiple of {shards}", (GLOBAL, *DEVICES))
    elif size // shards % micro and all(settings.word(name) in {"false", "no"} for name in BY_TOKENS):
        text = f"Data dict size ({size // shards}) is not a multiple of the provided microbatch size ({micro})"
        yield BrokenConstraint(text, TRAINED, f"make {MICRO} a divisor of {size // shards}", (MICRO, GLOBAL))


def _copies(settings: LaunchSettings) -> int | None:
    """Copies of the model; None if the settings don't say how it is split, or generation has GPUs of its own."""
    names, count = MEGATRON if settings.flag(WITH_MEGATRON) else DTENSOR, devices(settings, *DEVICES)
    apart = settings.given(COLOCATED) is not None and not settings.flag(COLOCATED)
    if settings.given(names[0]) is None or count is None or apart:
        return None
    split = settings.product(*names)
    return None if count % split else count // split


def _run(settings: LaunchSettings) -> Prediction | None:
    """Steps: whole batches of prompts per epoch times the epochs, at most max_num_steps."""
    prompts, group, size = (settings.whole(name) or 1 for name in (PROMPTS, GROUP, GLOBAL))
    rows, most = settings.dataset_size, settings.whole(MOST)
    if rows is None and settings.given(MOST) is None:
        most = None
    plan = None if rows is None else PromptPlan(rows, prompts, settings.product(EPOCHS), most)
    total = most if plan is None else plan.max_steps
    return Prediction.in_prompts(prompts, group, prompts * group / size, plan, total)


LAUNCHES = {
    "nemo-rl": OwnArithmetic(
        _broken,
        _run,
        counts=(PROMPTS, GROUP, GLOBAL, MICRO, MOST, EPOCHS, *DTENSOR, *MEGATRON),
        words=(PENALTY, ON_POLICY, SKIPS, WITH_MEGATRON, COLOCATED, *BY_TOKENS, "defaults"),
        devices=DEVICES,
    )
}
