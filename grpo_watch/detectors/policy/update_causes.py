"""Likely causes of gradients that vanish and of updates that never reach the weights."""

from __future__ import annotations

from dataclasses import replace

from grpo_watch.engine.likely_causes import ON, LikelyCause

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
)
ROUNDED = LikelyCause(
    "Steps too small for bfloat16 weights round away (NeMo Automodel PR #3444, AReaL PR #1634): keep fp32 masters.",
    {"dtype": ("bfloat16", "torch.bfloat16", "bf16")},
)
NO_PARAMETERS = LikelyCause(
    "The optimizer does not hold the model's parameters: count those in optimizer.param_groups."
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
