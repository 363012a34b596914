"""The settings of the KL penalty cancel each other, so it has no effect."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "kl-without-effect"
ALWAYS = 1.0
"""A mixup of this share makes a copy."""


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per KL setting that provably has no effect, or the wrong one."""
    if settings.facts.on_trainer:
        yield from _backwards(settings)
        yield from _reference(settings)
    elif settings.name_of("kl_in_loss"):
        yield from _switched(settings)


def _backwards(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A negative coefficient rewards distance from the reference."""
    beta, name = settings.number("beta"), settings.own_name("beta")
    if beta is not None and beta < 0:
        message = f"{name} is {beta:g}: the policy is rewarded for leaving the reference"
        yield LaunchProblem(NAME, Severity.WARNING, message, f"set {name} to 0 or more", settings.where("beta"))


def _reference(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A reference that is synced at every step measures nothing; without beta it isn't used."""
    if not settings.flag("sync_ref_model"):
        return
    where = settings.where("sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha")
    if settings.number("beta") == 0:
        message = "sync_ref_model is on and beta is 0: there is no reference model to sync"
        yield LaunchProblem(NAME, Severity.WARNING, message, "set beta, or sync_ref_model to false", where)
    elif settings.number("ref_model_sync_steps") == 1 and settings.number("ref_model_mixup_alpha") == ALWAYS:
        message = "the reference model becomes a copy of the policy after every step: the KL penalty is always 0"
        hint = "raise ref_model_sync_steps (512 is the default) or lower ref_model_mixup_alpha"
        yield LaunchProblem(NAME, Severity.WARNING, message, hint, where)


def _switched(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """A coefficient without its switch; both switches at once count the penalty twice."""
    actor, reward, coefficient = map(settings.name_of, ("kl_in_loss", "kl_in_reward", "kl_coefficient"))
    on = settings.flag(actor)
    if settings.given(coefficient) is not None and not on and (settings.number(coefficient) or 0) > 0:
        message = f"{coefficient} is set, but {actor} is off: there is no KL term in the loss"
        yield LaunchProblem(NAME, Severity.WARNING, message, f"set {actor}=True", settings.where(coefficient))
    if on and settings.number(coefficient) == 0:
        message = f"{actor} is on with a coefficient of 0: the reference model costs time and changes nothing"
        yield LaunchProblem(
            NAME, Severity.WARNING, message, f"set {coefficient} or switch it off", settings.where(coefficient)
        )
    if on and settings.flag(reward):
        message = f"{actor} and {reward} are both on: the KL penalty is counted twice"
        yield LaunchProblem(
            NAME, Severity.WARNING, message, f"set {reward}=False for GRPO", settings.where(reward, actor)
        )
