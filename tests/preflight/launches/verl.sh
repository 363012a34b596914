set -x
gsm8k=$HOME/data/gsm8k/train.parquet
prompts=256
n=5
tokens=$((1024 * 2))
python3 -m verl.trainer.main_ppo \
    --config-path=config \
    --config-name='ppo_megatron_trainer.yaml' \
    algorithm.adv_estimator=grpo \
    data.train_files="$gsm8k" \
    data.train_batch_size=${prompts} \
    data.max_response_length=${tokens} \
    actor_rollout_ref.rollout.n=${n} \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size='${data.train_batch_size}' \
    +actor_rollout_ref.actor.use_kl_loss=True \
    trainer.logger=['console','wandb'] \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=2 \
    ~trainer.resume_mode $@
