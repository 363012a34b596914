"""Logs a run's metrics through verl's own ``Tracking`` to SwanLab, MLflow, TensorBoard and its file logger at once.

Usage: log_like_verl.py FOLDER healthy|frozen
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import sys
from pathlib import Path
from types import ModuleType

STEPS = 40
TRACKERS = ("swanlab", "mlflow", "tensorboard", "file")
CONFIG = {
    "actor_rollout_ref": {
        "rollout": {"n": 8, "temperature": 1.0},
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.001, "ppo_epochs": 1, "optim": {"lr": 1e-6}},
        "model": {"path": "Qwen/Qwen2.5-0.5B-Instruct"},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"train_batch_size": 16, "max_response_length": 256},
    "trainer": {"total_epochs": 1, "save_freq": 10, "n_gpus_per_node": 1, "nnodes": 1},
}


def tracking() -> ModuleType:
    """verl's module by its file: importing the package would need ray and tensordict."""
    (folder,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    spec = importlib.util.spec_from_file_location("tracking", Path(folder) / "utils/tracking.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(step: int, chance: random.Random, *, frozen: bool) -> dict[str, float]:
    """What verl logs of a step. Frozen: the optimizer does nothing, so no KL ever leaves 0."""
    moved = 0.0 if frozen else 2e-4 * step * (1 + 0.2 * chance.random())
    reward = 0.3 + 0.02 * chance.random() + (0.0 if frozen else 0.2 * (1 - math.exp(-step / 20)))
    return {
        "critic/score/mean": reward,
        "critic/advantages/max": 1.5 + 0.1 * chance.random(),
        "critic/advantages/min": -1.5 - 0.1 * chance.random(),
        "actor/pg_loss": 0.01 * (chance.random() - 0.5),
        "actor/kl_loss": moved,
        "actor/kl_coef": 0.001,
        "actor/ppo_kl": moved / 10,
        "actor/pg_clipfrac": moved / 5,
        "actor/entropy": 0.6 + 0.05 * chance.random(),
        "actor/grad_norm": 0.3 + 0.1 * chance.random(),
        "actor/lr": 1e-6,
        "response_length/mean": 180.0 + 10 * chance.random(),
        "response_length/clip_ratio": 0.05,
        "prompt_length/clip_ratio": 0.0,
        "timing_s/step": 20.0 + chance.random(),
        "perf/max_memory_allocated_gb": 30.0,
        "training/global_step": step,
        "training/epoch": 0,
        "val-core/gsm8k/acc/mean@1": 0.4,
    }


def main(folder: Path, kind: str) -> None:
    """Log all steps."""
    os.environ |= {
        "SWANLAB_MODE": "offline",
        "SWANLAB_LOG_DIR": str(folder / "swanlab" / "swanlog"),
        "MLFLOW_TRACKING_URI": os.environ.get("MLFLOW_SERVER") or f"sqlite:///{folder}/mlflow/mlflow.db",
        "TENSORBOARD_DIR": str(folder / "tensorboard" / "events"),
        "VERL_FILE_LOGGER_PATH": str(folder / "file" / "run.jsonl"),
    }
    for tracker in TRACKERS:
        (folder / tracker).mkdir(parents=True)
    trackers = ["mlflow", "file"] if os.environ.get("MLFLOW_SERVER") else list(TRACKERS)
    logger = tracking().Tracking(kind, "one", trackers, CONFIG)
    chance = random.Random(7)
    for step in range(1, STEPS + 1):
        logger.log(row(step, chance, frozen=kind == "frozen"), step)
    logger.finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
