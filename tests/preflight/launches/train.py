import argparse
import os

from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--group", type=int, default=8)
args = parser.parse_args()

GPUS = 6
COMMON = dict(beta=0.04, num_generations=args.group)


def load():
    dataset = load_dataset("json", data_files="data/train.jsonl", split="train")
    dataset = dataset.map(lambda row: {"prompt": row["question"]})
    return dataset


dataset = load()
config = GRPOConfig(
    output_dir=f"out/{os.getpid()}",
    per_device_train_batch_size=args.batch,
    gradient_accumulation_steps=int(os.environ.get("ACCUMULATE", 2)),
    generation_batch_size=GPUS * 8,
    learning_rate=choose_rate(),
    **COMMON,
)
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-0.5B",
    args=config,
    train_dataset=dataset,
    eval_dataset=dataset.select(range(64)),
    peft_config=LoraConfig(r=16),
)
trainer.train()
