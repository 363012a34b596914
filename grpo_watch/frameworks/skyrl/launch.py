"""SkyRL: from its settings to the rules that they break and to its number of steps."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, devices, prompt_batches
from grpo_watch.frameworks.launches import LaunchSettings

WHEN = "when the configuration is validated, before the workers start"
BATCH, MINI, GROUP = "trainer.train_batch_size", "trainer.policy_mini_batch_size", "generator.n_samples_per_prompt"
MICRO, BY_TOKENS = "trainer.micro_train_batch_size_per_gpu", "trainer.max_tokens_per_microbatch"
EPOCHS, PASSES, MOST = "trainer.epochs", "trainer.update_epochs_per_batch", "trainer.max_training_steps"
DEVICES = ("trainer.placement.policy_num_gpus_per_node", "trainer.placement.policy_num_nodes")
STRATEGY, SEQUENCE = "trainer.strategy", "trainer.policy.sequence_parallel_size"
MEGATRON = tuple(
    f"trainer.policy.megatron_config.{name}_parallel_size" for name in ("pipeline_model", "context", "tensor_model")
)
KL_LOSS, KL_REWARD = "trainer.algorithm.use_kl_loss", "trainer.algorithm.use_kl_in_reward"


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    batch, mini, group = (settings.whole(name) or 1 for name in (BATCH, MINI, GROUP))
    if batch % mini:
        text = f"train_batch_size {batch} should be divisible by policy_mini_batch_size {mini}"
        yield BrokenConstraint(text, WHEN, f"make {MINI} a divisor of {batch}", (MINI, BATCH))
    else:
        yield from _shares(settings, batch, mini, group)
    if settings.flag(KL_LOSS) and settings.flag(KL_REWARD):
        text = "use_kl_in_reward and use_kl_loss should be mutually exclusive"
        yield BrokenConstraint(text, WHEN, f"set {KL_LOSS}=false", (KL_REWARD, KL_LOSS))


def _shares(settings: LaunchSettings, batch: int, mini: int, group: int) -> Iterator[BrokenConstraint]:
    """Each copy of the policy takes its share of a mini-batch, rounded down, in whole micro-batches."""
    count = devices(settings, *DEVICES)
    split = settings.product(SEQUENCE)
    if settings.word(STRATEGY) == "megatron":
        split = settings.product(*MEGATRON)
    if count is None or count < split:
        return
    copies, micro = count // split, settings.product(MICRO)
    own, whole = mini * group // copies, batch * group // copies
    if own == 0:
        text = "Invalid policy_mini_batch_size_per_gpu: 0"
        yield BrokenConstraint(text, WHEN, f"raise {MINI} x {GROUP} to {copies} or more", (MINI, GROUP))
    elif own % micro:
        text = f"normalized policy_mini_batch_size_per_gpu {own} should be divisible by "
        text += f"micro_train_batch_size_per_gpu {micro}"
        yield BrokenConstraint(text, WHEN, f"make {MICRO} a divisor of {own}", (MICRO, MINI, GROUP))
    elif whole % own:
        text = f"policy_train_batch_size_per_gpu {whole} should be divisible by policy_mini_batch_size_per_gpu {own}"
        yield BrokenConstraint(text, WHEN, f"make {MINI} x {GROUP} a multiple of {copies}", (MINI, GROUP))


def _run(settings: LaunchSettings) -> Prediction | None:
    """Steps: whole batches of prompts per epoch times the epochs, at most max_training_steps."""
    batch, mini, group, passes = (settings.whole(name) or 1 for name in (BATCH, MINI, GROUP, PASSES))
    updates = batch // mini * passes
    return prompt_batches(settings, batch, group, updates, settings.product(EPOCHS), settings.whole(MOST))


LAUNCHES = {
    "skyrl": OwnArithmetic(
        _broken,
        _run,
        counts=(BATCH, MINI, GROUP, MICRO, EPOCHS, PASSES, MOST, SEQUENCE, *MEGATRON),
        words=(BY_TOKENS, STRATEGY, KL_LOSS, KL_REWARD),
        devices=DEVICES,
    )
}
