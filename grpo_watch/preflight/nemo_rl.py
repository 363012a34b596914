"""NeMo-RL: from its settings to the rules that they break and to its number of steps."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.batch_prompts import PromptPlan
from grpo_watch.preflight.constraints import Broken, devices_unread, unread
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Prediction

WHEN = "when the trainer is set up"
PROMPTS, GROUP = "grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"
GLOBAL, MICRO = "policy.train_global_batch_size", "policy.train_micro_batch_size"
PENALTY, ON_POLICY = "loss_fn.reference_policy_kl_penalty", "loss_fn.force_on_policy_ratio"
SKIPS = "grpo.skip_reference_policy_logprobs_calculation"
MOST, EPOCHS = "grpo.max_num_steps", "grpo.max_num_epochs"
DEVICES = ("cluster.gpus_per_node", "cluster.num_nodes")


def lacking(settings: Settings) -> Iterator[str]:
    """What has to be known before a rule can be judged or a step predicted."""
    yield from unread(settings, (PROMPTS, GROUP, GLOBAL, MICRO, MOST, EPOCHS), (PENALTY, ON_POLICY, SKIPS))
    yield from devices_unread(settings, *DEVICES)


def broken(settings: Settings) -> Iterator[Broken]:
    """Every rule that the settings break; none where something they hang on is not known (see ``lacking``)."""
    if any(lacking(settings)):
        return
    completions = (settings.whole(PROMPTS) or 1) * (settings.whole(GROUP) or 1)
    size = settings.whole(GLOBAL) or 1
    if settings.flag(ON_POLICY) and size != completions:
        text = (
            "force_on_policy_ratio requires train_global_batch_size == num_prompts_per_step * "
            "num_generations_per_prompt"
        )
        yield Broken(text, WHEN, f"set {GLOBAL} to {completions}", (GLOBAL, PROMPTS, GROUP))
    skips = settings.flag(SKIPS)
    if skips and (settings.number(PENALTY) or 0) > 0:
        text = "grpo.skip_reference_policy_logprobs_calculation=True requires loss_fn.reference_policy_kl_penalty == 0"
        yield Broken(text, WHEN, f"set {PENALTY} to 0", (PENALTY,))


def predict(settings: Settings) -> Prediction | None:
    """Steps: whole batches of prompts per epoch times the epochs, at most max_num_steps."""
    if any(lacking(settings)) or any(broken(settings)):
        return None
    prompts, group, size = (settings.whole(name) or 1 for name in (PROMPTS, GROUP, GLOBAL))
    epochs, most = settings.whole(EPOCHS) or 1, settings.whole(MOST)
    rows = settings.dataset_size
    plan = None if rows is None else PromptPlan(rows, prompts, epochs, most)
    total = most if settings.given(MOST) is not None else None
    if plan is not None:
        total = plan.max_steps
    return Prediction(
        max_steps=total or None,
        steps_per_epoch=None if plan is None else plan.steps_per_epoch,
        completions_per_step=prompts * group,
        prompts_per_step=prompts,
        generation_batch_size=prompts * group,
        optimizer_steps_per_generation=prompts * group / size,
        formula="" if plan is None else f"{plan.formula} = {total or 0}",
        completions=None if not total else total * prompts * group,
    )
