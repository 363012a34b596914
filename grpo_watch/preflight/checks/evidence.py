"""What the run will not write down: completions and checkpoints that show whether it learns, or let it resume."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_batch import batch_of
from grpo_watch.frameworks.launch_rules import Prediction
from grpo_watch.frameworks.launches import LaunchSettings, at_least
from grpo_watch.preflight.findings import LaunchProblem, info, warning
from grpo_watch.preflight.predict import predict

NEVER = -1


def duplicates_unseen(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """No completions, or only one per prompt, are written to where they could be compared."""
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
    per_generation = batch.plan().micro_batches * batch.iterations / batch.accumulation
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


CHECKS = (duplicates_unseen, generations_unlogged, no_checkpoints, resume_without_optimizer)
