"""Completions and checkpoints that the run will not save, though they show whether it learns or let it resume."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_rules import Prediction, batch_of
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.preflight.findings import LaunchProblem, info, warning
from grpo_watch.preflight.predict import predict

NEVER = -1


def duplicates_unseen(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """Completions are not saved, or only one per prompt, so that copies can't be compared."""
    if not settings.facts.on_trainer:
        return
    if not settings.flag("log_completions"):
        message = "log_completions is off: repeated, truncated and mixed-up completions can't be seen"
        yield info(message, "set log_completions to true", settings.where("log_completions"))
        return
    unique = next((n for n in ("log_unique_prompts", "wandb_log_unique_prompts") if settings.flag(n)), None)
    since = settings.facts.whole_batch_dumped_since
    if unique is not None and (since is None or not at_least(settings.version, since)):
        message = f"{unique} keeps one completion per prompt: copies inside a group can't be seen"
        yield info(message, f"set {unique} to false", settings.where(unique))


def generations_unlogged(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """Completions are written, and several generations fall into one logging interval."""
    batch = batch_of(settings) if settings.facts.on_trainer and settings.flag("log_completions") else None
    every = settings.number("logging_steps")
    if batch is None or every is None or every < 1:
        return
    per_generation = batch.optimizer_steps_per_generation
    generations = every / max(per_generation, 1)
    if generations > 1:
        whole = generations == round(generations)
        share = (
            f"one of {generations:.0f} generation batches"
            if whole
            else f"{1 / generations:.0%} of the generation batches"
        )
        hint = f"set logging_steps to {max(1, round(per_generation))}"
        yield info(f"with logging_steps {every:g} only {share} is written", hint, settings.where("logging_steps"))


def no_checkpoints(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """Saving is off, or the interval is longer than half of the predicted run: a comparison takes two checkpoints."""
    name, message = _unsaved(settings)
    if message:
        hint = "save at least twice in the first tenth of the run; save_total_limit limits the disk space"
        yield info(message, hint, settings.where(name))


def _unsaved(settings: LaunchSettings) -> tuple[str, str]:
    """The setting to blame and the message; empty where checkpoints are written."""
    if name := settings.name_of("save_steps"):
        return name, f"{name} is -1: no checkpoint is ever written" if settings.whole(name) == NEVER else ""
    if not settings.facts.on_trainer:
        return "", ""
    strategy, every = settings.word("save_strategy"), settings.number("save_steps") or 0
    prediction = predict(settings)
    total = prediction.max_steps if prediction else None
    if strategy == "no":
        return "save_strategy", "save_strategy is no: no checkpoint is ever written"
    if strategy == "steps" and total and every > total / 2:
        return "save_steps", f"save_steps is {every:g} of {total} steps: no two checkpoints to compare"
    if strategy == "epoch" and (epochs := _epochs(settings, prediction)) is not None and epochs < 2:  # noqa: PLR2004
        text = f"save_strategy is epoch and the run has {epochs:.3g} epochs: no two checkpoints to compare"
        return "save_strategy", text
    return "", ""


def _epochs(settings: LaunchSettings, prediction: Prediction | None) -> float | None:
    """Passes over the dataset: as predicted if max_steps ends the run, else as set."""
    if (settings.number("max_steps") or 0) <= 0:
        return settings.number("num_train_epochs")
    if prediction is None or not prediction.max_steps or not prediction.steps_per_epoch:
        return None
    return prediction.max_steps / prediction.steps_per_epoch


def resume_without_optimizer(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """``save_only_model`` and ``resume_from_checkpoint`` are both set."""
    resumes = settings.word("resume_from_checkpoint") not in {"", "no", "false", "none"}
    if settings.facts.on_trainer and settings.flag("save_only_model") and resumes:
        message = "save_only_model leaves out optimizer, scheduler and random state: a resume starts without them"
        yield warning(message, "set save_only_model to false", settings.where("save_only_model"))


BEST, LOAD = "metric_for_best_model", "load_best_model_at_end"
EVALUATIONS = ("eval_strategy", "trainer.test_freq", "grpo.val_period")
OFF = frozenset({"no", "-1", "0", "-1.0", "0.0"})


def best_model_by_loss(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The best checkpoint is that of the lowest loss: by name, or as transformers' default if it is loaded."""
    named, given = settings.word(BEST), settings.given(BEST) is not None
    by_default = not given and settings.framework == "trl" and settings.flag(LOAD)
    if settings.facts.on_trainer and (named in {"loss", "eval_loss"} or by_default):
        default = "" if given else ", the default"
        message = f"the best checkpoint is the one of the lowest loss{default}: in GRPO that is near 0 by construction"
        hint = f"set {BEST} reward and greater_is_better true, with an evaluation"
        yield warning(message, hint, settings.where(BEST, LOAD))


def no_evaluation(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """The launch switches evaluation off explicitly; a default is not reported."""
    for name in EVALUATIONS:
        given = settings.given(name)
        if given is not None and str(given.value).lower() in OFF:
            message = f"{name} is {given.value}: nothing will show whether a rising reward holds on other prompts"
            hint = f"evaluate a few hundred held-out prompts ten times in the run ({name})"
            yield info(message, hint, settings.where(name))


CHECKS = (
    duplicates_unseen,
    generations_unlogged,
    no_checkpoints,
    resume_without_optimizer,
    best_model_by_loss,
    no_evaluation,
)
