"""slime: from its arguments to the rules that they break and to its number of rollouts."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, prompt_batches
from grpo_watch.frameworks.launches import LaunchSettings

WHEN, TRAINED = "when the arguments are validated", "at the first update, after the first rollout"
PROMPTS, GROUP, DRAWN = "rollout_batch_size", "n_samples_per_prompt", "over_sampling_batch_size"
BATCH, UPDATES = "global_batch_size", "num_steps_per_rollout"
ROLLOUTS, EPOCHS = "num_rollout", "num_epoch"
KL_REWARD, KL_LOSS = "kl_coef", "kl_loss_coef"


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    prompts, group = settings.product(PROMPTS), settings.product(GROUP)
    batch, updates, drawn = settings.whole(BATCH), settings.whole(UPDATES), settings.whole(DRAWN)
    if settings.number(KL_REWARD) and settings.number(KL_LOSS):
        text = "Only one of kl_coef and kl_loss_coef can be set"
        yield BrokenConstraint(text, WHEN, f"set {KL_REWARD} to 0", (KL_REWARD, KL_LOSS))
    if updates and batch and batch != prompts * group // updates:
        text = f"global_batch_size {batch} is not equal to rollout_batch_size {prompts} * n_samples_per_prompt {group} "
        text += f"// num_steps_per_rollout {updates}"
        yield BrokenConstraint(text, WHEN, f"leave out {UPDATES} or {BATCH}", (BATCH, UPDATES))
    elif batch and batch > prompts * group:
        text = f"num_rollouts ({prompts * group}) < global_batch_size ({batch})"
        yield BrokenConstraint(text, TRAINED, f"set {BATCH} to {prompts * group} or less", (BATCH, PROMPTS, GROUP))
    if drawn and drawn < prompts:
        text = f"over_sampling_batch_size {drawn} should be greater than or equal to rollout_batch_size {prompts}"
        yield BrokenConstraint(text, WHEN, f"set {DRAWN} to {prompts} or more", (DRAWN, PROMPTS))
    if settings.given(ROLLOUTS) is None and settings.given(EPOCHS) is None:
        text = "num_epoch is not set, but num_rollout is not set, please set --num-rollout or --num-epoch"
        yield BrokenConstraint(text, WHEN, f"set {ROLLOUTS}", (ROLLOUTS, EPOCHS))


def _run(settings: LaunchSettings) -> Prediction | None:
    """The shown step counts rollouts: as set, else whole batches of prompts per epoch."""
    prompts, group = settings.product(PROMPTS), settings.product(GROUP)
    updates = settings.whole(UPDATES) or prompts * group // (settings.whole(BATCH) or prompts * group)
    batch = settings.whole(BATCH) or prompts * group // updates
    unused = prompts * group - updates * batch
    notes = (f"{unused} of the {prompts * group} completions of a rollout are not trained on",) if unused > 0 else ()
    total, epochs = settings.whole(ROLLOUTS), settings.whole(EPOCHS)
    return prompt_batches(settings, prompts, group, updates, None if total else epochs, total, notes)


def _unknown(settings: LaunchSettings) -> Iterator[str]:
    if settings.given(PROMPTS) is None:
        yield f"{PROMPTS} is not known, and slime demands it"


LAUNCHES = {
    "slime": OwnArithmetic(
        _broken,
        _run,
        counts=(PROMPTS, GROUP, DRAWN, BATCH, UPDATES, ROLLOUTS, EPOCHS),
        words=(KL_REWARD, KL_LOSS),
        unknown=_unknown,
    )
}
