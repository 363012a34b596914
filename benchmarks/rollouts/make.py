"""Generates dumps of completions by seed: ms-swift's JSON lines, or TRL's Parquet files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 8
GROUPS = 64
SENTENCES = 6_000
MEAN_SENTENCES = 34
"""About 2,000 characters per completion, 500 tokens."""
LOOPING = 0.02
EMPTY = 0.01
SHARED = 0.05
"""Shares of completions that loop or are empty, and of groups in which two engines gave the same texts."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One generation: 64 prompts times 8 completions, and a reward for each."""

    step: int
    prompts: list[str]
    completions: list[str]
    rewards: list[float]


def batches(seed: int) -> Iterator[Batch]:
    """Batches without end; the same seed gives the same ones."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwygpbvk"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(4_000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    pool = [
        " ".join(rng.choices(words, weights, k=rng.randint(5, 15))) + rng.choice(". ,. :") for _ in range(SENTENCES)
    ]
    step = 0
    while True:
        step += 1
        yield _batch(step, pool, rng)


def _batch(step: int, pool: list[str], rng: random.Random) -> Batch:
    prompts: list[str] = []
    completions: list[str] = []
    for _ in range(GROUPS):
        prompts += [" ".join(rng.choices(pool, k=5))] * GROUP
        texts = [_completion(pool, rng) for _ in range(GROUP)]
        completions += texts[: GROUP // 2] * 2 if rng.random() < SHARED else texts
    rewards = [rng.choice((0.0, 0.1, 1.0)) for _ in completions]
    return Batch(step, prompts, completions, rewards)


def _completion(pool: list[str], rng: random.Random) -> str:
    kind = rng.random()
    if kind < EMPTY:
        return ""
    text = " ".join(rng.choices(pool, k=max(3, int(rng.gammavariate(3, MEAN_SENTENCES / 3)))))
    return text + " and so on" * 120 if kind < EMPTY + LOOPING else text


def write_jsonl(folder: Path, megabytes: float, seed: int = 1) -> Path:
    """``completions.jsonl`` of ms-swift, one line per step, of at least this size (10^6 bytes)."""
    folder.mkdir(parents=True)
    path = folder / "completions.jsonl"
    with path.open("wb") as out:
        for batch in batches(seed):
            columns = {
                "step": [str(batch.step)] * len(batch.prompts),
                "prompt": batch.prompts,
                "completion": batch.completions,
                "Accuracy": batch.rewards,
                "advantages": batch.rewards,
            }
            out.write(msgspec.json.encode(columns) + b"\n")
            if out.tell() >= megabytes * 1e6:
                break
    (folder / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "num_generations": GROUP}))
    return path


def write_parquet(folder: Path, megabytes: float, seed: int = 1) -> Path:
    """``completions/completions_<step>.parquet`` of TRL (its writer is pandas: snappy), as much text as asked for."""
    dumps = folder / "completions"
    dumps.mkdir(parents=True)
    size = 0
    for batch in batches(seed):
        table = pa.table(
            {
                "step": pa.array([batch.step] * len(batch.prompts)),
                "prompt": batch.prompts,
                "completion": batch.completions,
                "accuracy_reward": batch.rewards,
                "advantage": batch.rewards,
            }
        )
        pq.write_table(table, dumps / f"completions_{batch.step:05d}.parquet", compression="snappy")
        size += sum(len(text.encode()) for text in (*batch.prompts, *batch.completions))
        if size >= megabytes * 1e6:
            break
    return dumps
