"""Trains a tiny model by real TRL once for each fault, two jobs at a time: ``train_faults.py FOLDER [FAULT …]``.

Each job writes ``FOLDER/<fault>/train.log`` and ``output/``. TRL is loaded once, and each job is a fork. A job's end is
said on standard output: its name, the exit code and the time (Unix seconds).
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from train_tiny_grpo import model, tokenizer, vowel_share
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

STEPS, SAVE_STEPS = 32, 8
BEGINS = 10
"""The step from which faults that come later are there."""
AT_ONCE = 2
PROMPTS = [f"{a}+{b}=" for a in range(10) for b in range(10)]


@dataclass
class Job:
    """What is trained, and how; a fault changes it."""

    policy: Any
    rewards: list[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=lambda: PROMPTS)
    optimizers: tuple[Any, Any] = (None, None)
    callbacks: list[TrainerCallback] = field(default_factory=list)
    prepare: Callable[[GRPOTrainer], None] = lambda _: None


class FromStep(TrainerCallback):
    """Does something to the trainer once the step is reached."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """At the beginning of each step from that one on."""
        if state.global_step + 1 >= BEGINS:
            self._act()


def optimizer_over_a_copy(job: Job) -> None:
    """The optimizer was built before the model was copied: it trains weights that nobody uses."""
    job.settings["beta"] = 0.0
    job.optimizers = (torch.optim.AdamW(copy.deepcopy(job.policy).parameters(), lr=1e-3), None)


def schedule_that_dies(job: Job) -> None:
    """The learning rate is 0 after a fifth of the steps."""
    optimizer = torch.optim.AdamW(job.policy.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / (0.2 * STEPS)))
    job.optimizers = (optimizer, schedule)


def clipped_to_nothing(job: Job) -> None:
    """A gradient norm of 1e-9 at most: far below AdamW's epsilon, it moves nothing that counts."""
    job.settings |= {"max_grad_norm": 1e-9, "learning_rate": 1e-6}


def dead_reward(job: Job) -> None:
    """The second of two rewards is the same for every completion from a step on."""
    calls = iter(range(10**9))

    def brevity(completions: list[str], **_: Any) -> list[float]:
        number = next(calls)
        return [0.5 if number + 1 >= BEGINS else len(text) / 24 for text in completions]

    job.rewards.append(brevity)


def swallowed_exception(job: Job) -> None:
    """The reward raises from a step on, and somebody catches it: 0 for all."""
    calls = iter(range(10**9))

    def reward(completions: list[str], **more: Any) -> list[float]:
        return vowel_share(completions, **more) if next(calls) + 1 < BEGINS else [0.0] * len(completions)

    job.rewards[:] = [reward]


def all_truncated_and_masked(job: Job) -> None:
    """No completion ends, and those that don't are masked: there is no loss."""
    job.settings |= {"mask_truncated_completions": True, "max_completion_length": 8}

    def prepare(trainer: GRPOTrainer) -> None:
        trainer.generation_config.suppress_tokens = [1]

    job.prepare = prepare


def reference_is_the_policy(job: Job) -> None:
    """The reference model is the same object as the one that is trained."""

    def prepare(trainer: GRPOTrainer) -> None:
        trainer.ref_model = trainer.model

    job.prepare = prepare


def the_same_completion(job: Job) -> None:
    """``top_k=1`` from a step on: all completions of a group are one text."""

    def prepare(trainer: GRPOTrainer) -> None:
        def act() -> None:
            trainer.generation_config.top_k = 1

        trainer.add_callback(FromStep(act))

    job.prepare = prepare


def one_prompt(job: Job) -> None:
    """A data set that holds the same prompt everywhere."""
    job.prompts = ["1+1="] * len(PROMPTS)


def some_rewards_nan(job: Job) -> None:
    """One reward in eight is NaN from a step on."""
    calls = iter(range(10**9))

    def reward(completions: list[str], **more: Any) -> list[float]:
        values = vowel_share(completions, **more)
        if next(calls) + 1 >= BEGINS:
            values[3] = values[11] = float("nan")
        return values

    job.rewards[:] = [reward]


def untrained_weights_saved(job: Job) -> None:
    """Training works, and every checkpoint holds the weights that it began with."""

    def prepare(trainer: GRPOTrainer) -> None:
        first, save = copy.deepcopy(trainer.model), trainer._save
        trainer._save = lambda output_dir=None, state_dict=None: save(output_dir, first.state_dict())  # noqa: ARG005

    job.prepare = prepare


def nothing(job: Job) -> None:
    """A healthy run."""
    del job


FAULTS: dict[str, Callable[[Job], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        optimizer_over_a_copy,
        schedule_that_dies,
        clipped_to_nothing,
        dead_reward,
        swallowed_exception,
        all_truncated_and_masked,
        reference_is_the_policy,
        the_same_completion,
        one_prompt,
        some_rewards_nan,
        untrained_weights_saved,
        nothing,
    )
}


def train(name: str, folder: Path) -> None:
    """One job, in this process."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    tokens = tokenizer()
    with tempfile.TemporaryDirectory() as untrained:
        job = Job(model(len(tokens), untrained), [vowel_share])
        FAULTS[name](job)
        settings = {
            "output_dir": str(folder / "output"),
            "use_cpu": True,
            "bf16": False,
            "max_steps": STEPS,
            "logging_steps": 1,
            "save_steps": SAVE_STEPS,
            "report_to": "none",
            "log_completions": True,
            "num_completions_to_print": 1,
            "per_device_train_batch_size": 16,
            "num_generations": 8,
            "max_completion_length": 16,
            "beta": 0.04,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "gradient_checkpointing": False,
            "seed": 7,
        }
        trainer = GRPOTrainer(
            model=job.policy,
            reward_funcs=job.rewards,
            args=GRPOConfig(**(settings | job.settings)),
            train_dataset=Dataset.from_dict({"prompt": job.prompts}),
            processing_class=tokens,
            optimizers=job.optimizers,
        )
        job.prepare(trainer)
        trainer.train()


def start(name: str, folder: Path) -> int:
    """Fork a job whose output goes to its log; its process id."""
    folder.mkdir(parents=True)
    child = os.fork()
    if child:
        return child
    log = os.open(folder / "train.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        train(name, folder)
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """All jobs, ``AT_ONCE`` of them side by side."""
    parent, waiting = Path(sys.argv[1]), sys.argv[2:] or list(FAULTS)
    running: dict[int, str] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            running[start(name, parent / name)] = name
        child, status = os.wait()
        print(running.pop(child), os.waitstatus_to_exitcode(status), time.time(), flush=True)  # noqa: T201  its output


if __name__ == "__main__":
    main()
