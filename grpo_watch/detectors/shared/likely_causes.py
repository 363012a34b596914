"""Likely causes that several rules share: settings, rollout engines, updates that never reach the weights."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from grpo_watch.detectors.shared.logprob_gap import FRESH_TOO, GREW_OLDER, KEPT_AGE, ONLY_AGED
from grpo_watch.engine.traits import ON, LikelyCause

FAST_FULL, FAST_ADAPTER = 5e-6, 1e-4
"""Learning rates to ask about: five times the usual 1e-6 for all weights, ten times an adapter's 1e-5. A proposal."""
RATE = LikelyCause(
    "learning_rate is {learning_rate}, high for training all weights (1e-6 is usual): go down to a tenth.",
    {"adapter": ("false",)},
    bounds={"learning_rate": (FAST_FULL, inf)},
)
ADAPTER_RATE = LikelyCause(
    "learning_rate is {learning_rate}, high for an adapter (1e-5 is usual): go down to a tenth.",
    {"adapter": ("true",)},
    bounds={"learning_rate": (FAST_ADAPTER, inf)},
)
UNHELD = LikelyCause(
    "beta is {beta}, so that nothing holds the policy near its start: raise it, or lower the learning rate.",
    bounds={"beta": (0.0, 1e-3)},
)
NARROW = LikelyCause(
    "temperature is {temperature}: samples are narrower than the policy; set 1.0.",
    bounds={"temperature": (0.0, 0.7)},
)
CUT_IN_LOSS = LikelyCause(
    "Truncated completions stay in the loss (mask_truncated_completions, overlong_filter): leave them out.",
    {"mask_truncated_completions": ("false", "0")},
)

RATES = (RATE, ADAPTER_RATE)


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

FP32 = LikelyCause(
    "The trainer's weights are float32, while vLLM loads the type that the model was saved in (mostly bfloat16): give "
    "both the same.",
    {"dtype": ("float32", "torch.float32", "fp32"), "use_vllm": ON},
)
NOT_CUT = "may be counted as cut"
SEVERAL_ENDS = LikelyCause(
    "The model has several end tokens and the trainer knows one (TRL PR 7039): name all in generation_config.",
    shows=NOT_CUT,
)
CONTEXT = LikelyCause(
    "The engine's context is shorter than prompt and limit together: compare vllm max_model_len.", shows=NOT_CUT
)

ENGINE = LikelyCause(
    "Samples of the current weights differ as well: precision, kernels or MoE routing of the engine, not staleness.",
    shows=FRESH_TOO,
)
STALE = LikelyCause(
    "Samples of the current weights agree: sync more often, allow less staleness, or correct with importance weights.",
    shows=ONLY_AGED,
)
NEVER_SYNCED = LikelyCause(
    "The gap climbs with learning rate times steps and not with the age of samples: no sync ever arrived (verl#7495).",
    shows=KEPT_AGE,
)
BEHIND = LikelyCause("The gap climbs with the age of samples: the trainer falls behind its rollouts.", shows=GREW_OLDER)

WEIGHTS = (SLEEP_2, LORA_SYNC, NEVER_SYNCED, BEHIND, ENGINE, STALE, FP32, SYNC_OFF)
CUT_OFF_CAUSES = (SEVERAL_ENDS, CONTEXT, CAP_256, LIMIT, SLEEP_2, NO_STOP)
NO_TEXT = (SLEEP_2, TEMPLATE)
"""Each in rank order, from issues of the frameworks (numbers in the texts)."""


MOVED_BEFORE = "by its KL the policy moved before, so updates have stopped, or another copy is saved"
"""Added to a finding about identical checkpoints if the policy once learned …"""
WRONG_MODEL_SAVED = "the saved model is not the one being trained"
"""… and if it still learns."""
LEARNED = (MOVED_BEFORE, WRONG_MODEL_SAVED)
OFFLOAD_3 = LikelyCause(
    "DeepSpeed ZeRO-3 with optimizer offload: upgrade deepspeed and try ZeRO-2 without offload "
    "(ms-swift#4570, #7229 show this picture; #5890 was cured by the upgrade).",
    {"deepspeed_stage": ("3",), "offload_optimizer": ON},
)
OFFLOAD_2 = LikelyCause(
    "DeepSpeed ZeRO-2 with optimizer offload copied gradients at the wrong micro-steps under gradient accumulation "
    "(DeepSpeed PR #6550): upgrade deepspeed or drop the offload.",
    {"deepspeed_stage": ("2",), "offload_optimizer": ON},
)
STAGE_3 = LikelyCause(
    "DeepSpeed ZeRO-3: zero gradients were reported on several nodes and cured by a newer deepspeed (ms-swift#5890, "
    "#7229); compare two steps with ZeRO-2.",
    {"deepspeed_stage": ("3",)},
)
ANY_STAGE = LikelyCause(
    "A deepspeed release that loses gradients (0.14.3 showed a norm of 0: DeepSpeed#5692): try another.",
    {"deepspeed_stage": ("1", "2", "3")},
)
CHECKPOINTED = LikelyCause(
    "An adapter with gradient checkpointing whose inputs need no gradient (trl#2671, peft#1142): set "
    "gradient_checkpointing_kwargs use_reentrant=False or call enable_input_require_grads().",
    {"adapter": ("true",), "gradient_checkpointing": ("true",)},
)
FROZEN = LikelyCause(
    "Nothing trainable in the loss's path: count the parameters with requires_grad, look at freeze_* options."
)
NOT_TRAINABLE = LikelyCause(
    "The adapter was loaded with is_trainable=False, so that the optimizer holds no parameter (TRL PR #6701).",
    {"adapter": ("true",), "adapter_continued": ("true",)},
    unless=LEARNED,
)
ROUNDED = LikelyCause(
    "Steps too small for bfloat16 weights round away (NeMo Automodel PR #3444, AReaL PR #1634): keep fp32 masters.",
    {"dtype": ("bfloat16", "torch.bfloat16", "bf16")},
    unless=(WRONG_MODEL_SAVED,),
)
NO_PARAMETERS = LikelyCause(
    "The optimizer does not hold the model's parameters: count those in optimizer.param_groups.", unless=LEARNED
)
OTHER_COPY = LikelyCause(
    "The weights that are saved are not those that are trained: another copy, an inactive adapter, an old wrapper."
)
EXACT = "exactly 0"
SAME_OBJECT = LikelyCause(
    "The reference is the policy itself, and moves with it: the next two checkpoints tell.", shows=EXACT
)

GRADIENTS = (OFFLOAD_3, OFFLOAD_2, CHECKPOINTED, STAGE_3, ANY_STAGE, FROZEN)
UPDATES = (NOT_TRAINABLE, OFFLOAD_3, OFFLOAD_2, ROUNDED, NO_PARAMETERS, OTHER_COPY)
NO_MOVEMENT = (*UPDATES[:-2], CHECKPOINTED, STAGE_3, replace(NO_PARAMETERS, shows=EXACT), SAME_OBJECT)
ADAPTER_UPDATES = (NOT_TRAINABLE, CHECKPOINTED, OFFLOAD_3, OFFLOAD_2, NO_PARAMETERS)
"""Each in rank order, from issues of the frameworks (numbers in the texts)."""

GREEDY_CAUSES = (
    LikelyCause("temperature is {temperature}: decoding is greedy; set 1.0.", bounds={"temperature": (0.0, 0.05)}),
    LikelyCause("top_k is 1: decoding is greedy; set 0 (vLLM: -1).", bounds={"top_k": (1, 1)}),
    LikelyCause("top_p is {top_p}: decoding is greedy; set 1.0.", bounds={"top_p": (0.0, 0.05)}),
    LikelyCause("do_sample is off: decoding is greedy; switch it on.", {"do_sample": ("false",)}),
    LikelyCause(
        "Decoding is greedy in effect: do_sample, top_k 1, or defaults of generation_config that override the "
        "temperature (trl#5783, transformers 4.50 and later).",
        shows="decoding is greedy",
    ),
)
SAME_SEEDS = (
    LikelyCause(
        "Every request to the engine has seed {request_seed}: leave it out, or give each its own.",
        bounds={"request_seed": (-inf, inf)},
    ),
    LikelyCause(
        "All training processes began with one random seed, as the callback saw: seed each with seed + rank.",
        {"rank_seeds": ("same",)},
    ),
)
OTHER_TEMPERATURE = LikelyCause(
    "The model's generation_config has temperature {model_temperature}, which transformers 4.50 and later may put over "
    "the trainer's 1.0 (trl#5783): take it out of generation_config.",
    {"use_vllm": ("false",)},
    bounds={"model_temperature": (0.0, 0.99), "temperature": (1.0, 1.0)},
)
ANY_SAMPLING = LikelyCause(
    "Sampling is greedy in effect: generation_config defaults can override the temperature (trl#5783, transformers "
    "4.50 and later); print the resolved sampling parameters."
)

COPIES = (*GREEDY_CAUSES, *SAME_SEEDS, OTHER_TEMPERATURE)
NEAR_COPIES = (*GREEDY_CAUSES, OTHER_TEMPERATURE, ANY_SAMPLING)
"""Each in rank order, from issues of the frameworks (numbers in the texts)."""
