"""Measures what the callback adds to an optimizer step of real TRL.

    python benchmarks/callback_in_training.py [--layers 24] [--hidden 896] [--steps 12] [--completion-length 32]

A Qwen2 with random weights, built in code (the defaults make the layers of Qwen2.5-0.5B), trains in bf16 on the first
accelerator, or on the CPU without one. Needs the environment of ``scripts/setup frameworks``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from grpo_watch.callback import GrpoWatchCallback

LETTERS = "abcdefghijklmnopqrstuvwxyz 0123456789+="
SPECIAL = ["<pad>", "<eos>", "<unk>"]
WARM_UP = 2
"""Steps at the start that are not counted: kernels are chosen, memory is taken."""


class TimedCallback(GrpoWatchCallback):
    """Probes after each step, and keeps the seconds of steps and probes."""

    def __init__(self) -> None:
        super().__init__(every=1)
        self.steps: list[float] = []
        self.probes: list[float] = []
        self.begun = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock of a step."""
        self.begun = _now()

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        """Stop it, then time the probe."""
        ended = _now()
        super().on_step_end(*arguments, **named)
        self.steps.append(ended - self.begun)
        self.probes.append(_now() - ended)


def _now() -> float:
    """Seconds, once the accelerator has done all it was asked."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per character."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *LETTERS])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[2]))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.decoder = decoders.Fuse()
    pad, eos, unknown = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=pad, eos_token=eos, unk_token=unknown, padding_side="left"
    )


def config(options: argparse.Namespace) -> Qwen2Config:
    """The layers of Qwen2.5-0.5B, unless asked otherwise, with a token per letter."""
    return Qwen2Config(
        vocab_size=len(SPECIAL) + len(LETTERS),
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 38 // 7,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=True,
    )


def vowel_share(completions: list[str], **_: Any) -> list[float]:
    """A reward that differs inside every group."""
    return [sum(letter in "aeiou" for letter in text) / max(len(text), 1) for text in completions]


def train(options: argparse.Namespace, folder: str) -> tuple[TimedCallback, int]:
    """Train; what was timed, and how many parameters the model has."""
    Qwen2ForCausalLM(config(options)).save_pretrained(folder)
    settings = GRPOConfig(
        output_dir=f"{folder}/output",
        bf16=torch.cuda.is_available(),
        max_steps=options.steps + WARM_UP,
        logging_strategy="no",
        save_strategy="no",
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=options.completion_length,
        learning_rate=1e-6,
        beta=0.0,
        report_to=[],
        disable_tqdm=True,
    )
    timed = TimedCallback()
    trainer = GRPOTrainer(
        model=Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=vowel_share,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": [f"{first}+{first}=" for first in range(64)]}),
        processing_class=tokenizer(),
        callbacks=[timed],
    )
    trainer.train()
    return timed, sum(one.numel() for one in trainer.model.parameters())


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--completion-length", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        timed, parameters = train(options, folder)
        lines = sum(1 for file in Path(folder).rglob("grpo-watch-probe-*.jsonl") for _ in file.open())
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    step, probe = median(timed.steps[WARM_UP:]), median(timed.probes[WARM_UP:])
    print(
        f"{device}, {parameters / 1e9:.2f} billion float32 parameters, {len(timed.steps)} steps, {lines} lines written"
    )
    print(f"median step {step:.3f} s, median probe {1e3 * probe:.1f} ms: {100 * probe / step:.2f} %")


if __name__ == "__main__":
    main()
