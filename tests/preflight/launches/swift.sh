#!/usr/bin/env bash
# Six GPUs train, two serve the rollouts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5
GROUP=${GROUP:-8}
PER_DEVICE=$((GROUP))
NAME="grpo $(date +%F)"
MODE=fast
if [ "$MODE" = fast ]; then
  RATE=2e-6
else
  RATE=1e-6
fi

COMMON=(
  --reward_funcs accuracy format   # two of them
  --num_generations "$GROUP"
  --beta 0.04
)

cat > /dev/null <<'TEXT'
swift rlhf --rlhf_type grpo --num_generations 3
TEXT

CUDA_VISIBLE_DEVICES=6,7 swift rollout --model Qwen/Qwen2.5-7B-Instruct &

NPROC_PER_NODE=6 MAX_PIXELS=602112 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --train_type lora \
    --dataset 'AI-MO/NuminaMath-TIR#8000' \
    --split_dataset_ratio 0.01 \
    "${COMMON[@]}" \
    --per_device_train_batch_size $PER_DEVICE \
    --per-device-eval-batch-size=$PER_DEVICE \
    --gradient_accumulation_steps 2 \
    --num_iterations 2 \
    --learning_rate $RATE \
    --max_completion_length $LENGTH \
    --output_dir "out/$NAME" \
    --use_vllm true \
    --deepspeed zero2 2>&1 | tee train.log
