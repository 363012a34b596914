"""Likely causes of a rollout engine that has other weights than the trainer, or stops too early or too late."""

from __future__ import annotations

from math import inf

from grpo_watch.engine.likely_causes import ON, LikelyCause

SLEEP_2 = LikelyCause(
    "vLLM sleep level 2 discards the weights (TRL#5312, ms-swift#7017, vllm#29341): use --sleep_level 1.",
    {"vllm_sleep_level": ("2",)},
)
LORA_SYNC = LikelyCause(
    "The adapter never reaches vLLM (verl#7495, TRL#2698): list the engine's adapters, try vllm_enable_lora=false.",
    {"adapter": ("true",), "use_vllm": ON},
)
SYNC_OFF = LikelyCause(
    "The engine gets no weights after an update: force a sync every step and reset its prefix cache."
)
CAP_256 = LikelyCause(
    "max_completion_length is TRL's old default, with which 97 to 99 % were truncated elsewhere (trl#5697).",
    {"max_completion_length": ("256",)},
    "trl",
)
LIMIT = LikelyCause(
    "The limit is {max_completion_length} tokens: where texts are sensible but unfinished, raise it two- to fourfold.",
    bounds={"max_completion_length": (1, inf)},
)
NO_STOP = LikelyCause("No end token is sampled: check chat template, EOS and stop tokens (ms-swift#4950).")
TEMPLATE = LikelyCause("The engine stops at once: check the chat template, stop words and min_tokens.")

WEIGHTS = (SLEEP_2, LORA_SYNC, SYNC_OFF)
CUT_OFF_CAUSES = (CAP_256, LIMIT, SLEEP_2, NO_STOP)
NO_TEXT = (SLEEP_2, TEMPLATE)
"""Each in rank order, from issues of the frameworks (numbers in the texts)."""
