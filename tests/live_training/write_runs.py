"""Writes a healthy run and one whose policy is frozen, as a package leaves them, and JSON lines of the same values.

Usage: write_runs.py WRITER FOLDER; each writer makes ``FOLDER/healthy/source`` and ``FOLDER/frozen/source``.

What a package itself writes is written by it. Not by it: prime-rl's rows (it is not on PyPI; the episodes are
verifiers' own) and slime's lines (it needs Megatron; printed with its format, ``logger.info(f"step {step}: {row}")``).
"""

# ruff: noqa: PLC0415  each writer imports its own package

from __future__ import annotations

import ast
import importlib.util
import json
import logging
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from tests.live_training.log_like_verl import CONFIG, STEPS, row

GROUPS, SIZE = 4, 4
STOPS = 10
"""The step from which a policy that moved at first is frozen."""
Rows: TypeAlias = "list[tuple[int, dict[str, float]]]"
Rewards: TypeAlias = "list[list[float]]"


def rewards_of(step: int) -> Rewards:
    """The rewards of a step's groups: some right, never all."""
    chance = random.Random(step)
    return [[1.0, 0.0, *(float(chance.random() < 0.5) for _ in range(SIZE - 2))] for _ in range(GROUPS)]


def answer(step: int, group: int, place: int) -> str:
    """A completion that no other has."""
    chance = random.Random(f"{step}/{group}/{place}")
    words = ("so", "we", "add", "the", "numbers", "and", "get", "then", "halve", "it", "twice", "which", "gives")
    return " ".join(chance.choice(words) for _ in range(30)) + f" {chance.randrange(1000)}"


def measured(step: int, *, frozen: bool) -> SimpleNamespace:
    """What each framework says in its own keys. Frozen: neither a gradient nor a KL ever leaves 0."""
    chance, moved = random.Random(f"row {step}"), 0.0 if frozen else 2e-4 * step
    rewards = [reward for group in rewards_of(step) for reward in group]
    return SimpleNamespace(
        reward=sum(rewards) / len(rewards) + (0.0 if frozen else 0.2 * (1 - math.exp(-step / 20))),
        kl=moved * (1 + 0.2 * chance.random()),
        first_kl=2e-4 * step if step < STOPS else 0.0,
        grad=0.0 if frozen else 0.3 + 0.1 * chance.random(),
        entropy=0.6 + 0.05 * chance.random(),
        gap=1e-4 * (1 + chance.random()),
        length=180.0 + 10 * chance.random(),
        loss=0.01 * (chance.random() - 0.5),
        seconds=20.0 + chance.random(),
    )


def of_verl(*, frozen: bool) -> Rows:
    chance = random.Random(7)
    return [(step, row(step, chance, frozen=frozen)) for step in range(1, STEPS + 1)]


def each(shape: Callable[[SimpleNamespace], dict[str, float]], *, frozen: bool, first: int = 1) -> Rows:
    return [(step, shape(measured(step, frozen=frozen))) for step in range(first, first + STEPS)]


def mlflow_files(folder: Path, *, frozen: bool) -> Rows:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    logged = of_verl(frozen=frozen)
    rows = [(step, {key.replace("@", "_at_"): value for key, value in values.items()}) for step, values in logged]
    mlflow.set_tracking_uri(f"file:{folder}/mlruns")
    mlflow.set_experiment("grpo")
    with mlflow.start_run(run_name="one"):
        mlflow.log_params({"actor_rollout_ref/actor/kl_loss_coef": 0.001})
        for step, values in rows:
            mlflow.log_metrics(values, step=step)
    return rows


def swanlab_old(folder: Path, *, frozen: bool) -> Rows:
    import swanlab

    assert swanlab.__version__.startswith("0.7.")
    run = swanlab.init(project="grpo", logdir=str(folder / "swanlog"), mode="offline", config=CONFIG, reinit=True)
    rows = of_verl(frozen=frozen)
    for step, values in rows:
        run.log(values, step=step)
    swanlab.finish()
    return rows


def trl_async(folder: Path, *, frozen: bool) -> Rows:
    """The trainer's rows as Transformers' callback logs them to trackio, its traces, and an alert of the job's."""
    stored = folder.parents[1] / "trackio"
    os.environ["TRACKIO_DIR"] = str(stored)  # read once
    import numpy as np
    import trackio
    from transformers.integrations.integration_utils import rewrite_logs
    from trl.experimental.async_grpo.async_grpo_trainer import log_rollout_traces
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    rows = each(
        lambda at: {
            "loss": at.loss, "grad_norm": at.grad, "learning_rate": 1e-6, "reward": at.reward, "reward_std": 0.4,
            "kl": at.gap, "ratio": 1.0, "entropy": at.entropy, "completions/mean_length": at.length,
            "sample/staleness_mean": 1.0, "perf/step_s": at.seconds, "perf/fwd_bwd_s": at.seconds / 2,
        },
        frozen=frozen,
    )  # fmt: skip
    config = {"num_generations": SIZE, "learning_rate": 1e-6}
    trackio.init(project=f"p{frozen:d}", name="one", config=config, embed=False)
    for step, values in rows:
        samples = [
            RolloutSample(
                [{"role": "user", "content": f"Question {group} of {step}?"}],
                [{"role": "assistant", "content": answer(step, group, place)}],
                np.arange(60), np.arange(60) >= 20, np.zeros(60), reward - 0.5, step, 10 * step + group,
                {"reward": reward, "rewards/accuracy": reward},
            )
            for group, rewards in enumerate(rewards_of(step))
            for place, reward in enumerate(rewards)
        ]  # fmt: skip
        log_rollout_traces(samples, step, ["trackio"])
        trackio.log({**rewrite_logs(values), "train/global_step": step})
    trackio.alert("disk", text="nearly full")
    trackio.finish()
    folder.mkdir(parents=True)
    (stored / f"p{frozen:d}.db").rename(folder / "p.db")
    return rows


def tinker(folder: Path, *, frozen: bool) -> Rows:
    from tinker_cookbook.stores.storage import LocalStorage
    from tinker_cookbook.stores.training_store import TrainingRunStore

    store = TrainingRunStore(LocalStorage(folder))
    config = {"learning_rate": 1e-4, "dataset_builder": {"batch_size": GROUPS, "group_size": SIZE}, "max_tokens": 256}
    store.write_config({**config, "model_name": "m", "recipe_name": "math_rl", "kl_penalty_coef": 0.01})
    rows = each(
        lambda at: {
            "optim/lr": 1e-4, "env/all/reward/total": at.reward, "env/all/by_group/frac_mixed": 1.0,
            "env/all/ac_tokens_per_turn": at.length, "optim/entropy": at.entropy, "kl_policy_base": at.kl,
            "optim/kl_sample_train_v1": at.gap, "optim/kl_sample_train_v2": at.gap, "time/total": at.seconds,
            "unclipped_grad_l2:mean": at.grad or 0.3, "progress/done_frac": 0.5,
        },
        frozen=frozen, first=0,
    )  # fmt: skip
    for step, values in rows:
        store.write_metrics(values, step=step)
        turn = {"step_idx": 0, "ob_len": 20, "ac_len": 90, "episode_done": True, "metrics": {"stop/completed": 1.0}}
        records = [
            {
                "schema_version": 1, "split": "train", "iteration": step, "group_idx": group, "traj_idx": place,
                "tags": [], "sampling_client_step": step, "total_reward": reward, "final_reward": 0.0,
                "trajectory_metrics": {}, "steps": [{**turn, "reward": reward, "logs": {}}], "final_ob_len": 0,
            }
            for group, rewards in enumerate(rewards_of(step))
            for place, reward in enumerate(rewards)
        ]  # fmt: skip
        store.write_rollouts(step, records)
    return rows


def prime_rl(folder: Path, *, frozen: bool) -> Rows:
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.episode import Episode, GroupInfo
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import State
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import AgentInfo, Reward, Trace, TraceTask
    from verifiers.v1.types import AssistantMessage, UserMessage

    rows = each(
        lambda at: {
            "optim/lr": 1e-6, "optim/grad_norm": at.grad, "loss/mean": at.loss, "entropy/all/mean": at.entropy,
            "mismatch_kl/all/mean": at.gap, "train/all/agent/reward/mean": at.reward, "time/step": at.seconds,
            "train/all/agent/num_output_tokens/mean": at.length, "train/all/agent/is_truncated/mean": 0.0,
            "train/all/agent/solved_some": 1.0,
        },
        frozen=frozen, first=0,
    )  # fmt: skip

    def trace(step: int, group: int, place: int, reward: float) -> Trace:
        return Trace[WireTaskData, State, WireAgentConfig](
            task=TraceTask(type="Sum", data=WireTaskData(prompt=f"Question {group} of {step}?")),
            agent=AgentInfo(config=WireAgentConfig()),
            nodes=[
                MessageNode(message=UserMessage(content=f"Question {group} of {step}?")),
                MessageNode(parent=0, sampled=True, message=AssistantMessage(content=answer(step, group, place))),
            ],
            rewards={"accuracy": Reward(score=reward)},
            is_completed=True,
            ok=True,
        )

    _json_lines(folder / "metrics.jsonl", rows)
    for step, _ in rows:
        dumped = folder / "rollouts" / f"step_{step}" / "train" / "effective"
        dumped.mkdir(parents=True)
        with (dumped / "traces.jsonl").open("w", encoding="utf-8") as file:
            for group, rewards in enumerate(rewards_of(step)):
                for place, reward in enumerate(rewards):
                    one = trace(step, group, place, reward)
                    episode = Episode[WireTaskData, State, WireAgentConfig](
                        task=one.task, group=GroupInfo(id=f"{step}-{group}"), ok=True, traces=[one]
                    )
                    file.write(json.dumps(episode.to_record()) + "\n")
    return rows


def slime(folder: Path, *, frozen: bool) -> Rows:
    rows = each(
        lambda at: {
            "rollout/raw_reward": at.reward, "rollout/response_lengths": at.length, "rollout/truncated": 0.0,
            "train/loss": at.loss, "train/pg_loss": at.loss, "train/kl_loss": at.kl or at.first_kl,
            "train/ppo_kl": at.gap, "train/entropy_loss": at.entropy, "train/pg_clipfrac": 0.0,
            "train/grad_norm": at.grad or 0.3, "train/lr-pg_0": 1e-6,
        },
        frozen=frozen, first=0,
    )  # fmt: skip
    folder.mkdir(parents=True)
    handler = logging.FileHandler(folder / "train.log")
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(filename)s:%(lineno)d - %(message)s"))
    logger = logging.getLogger(f"slime{frozen}")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    for argument, value in {"use_kl_loss": True, "kl_loss_coef": 0.001, "n_samples_per_prompt": SIZE}.items():
        logger.info(f"  {argument} {'.' * (48 - len(argument))} {value}")  # noqa: G004  as it prints them
    for step, values in rows:
        first = {key: value for key, value in values.items() if key.startswith("rollout/")}
        logger.info(f"rollout {step}: {first}")  # noqa: G004
        logger.info(f"step {step}: { {key: values[key] for key in values.keys() - first.keys()} }")  # noqa: G004
    handler.close()
    return rows


def verl_dumps(folder: Path, *, frozen: bool) -> Rows:
    """Its file logger's rows beside its own dumps of a validation every ten steps."""
    (package,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    source = (Path(package) / "trainer/ppo/ray_trainer.py").read_text(encoding="utf-8")
    dump = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "_write_generations"
    )
    dump.decorator_list = []  # importing the module would need ray's cluster and tensordict
    scope: dict[str, Any] = {"os": os, "json": json}
    exec(compile(ast.Module([dump], []), "ray_trainer.py", "exec"), scope)  # noqa: S102
    write = scope["_write_generations"]
    rows = of_verl(frozen=frozen)
    _json_lines(folder / "run.jsonl", rows)
    for step in range(0, STEPS + 1, 10):
        scores = [reward for group in rewards_of(1) for reward in group]
        questions = [f"Question {at}?" for at in range(len(scores))]
        texts = [answer(step, 0, at) for at in range(len(scores))]
        write(questions, texts, ["4"] * len(scores), scores, {"acc": scores}, folder / "validation", step)
    return rows


WRITERS = {
    "mlflow-files": mlflow_files,
    "swanlab-0.7": swanlab_old,
    "trl-async": trl_async,
    "tinker-cookbook": tinker,
    "prime-rl": prime_rl,
    "slime": slime,
    "verl-dumps": verl_dumps,
}


def _json_lines(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: Iterator[str] = (json.dumps({"step": step, **values}) for step, values in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(writer: str, folder: Path) -> None:
    """Write both runs."""
    for kind in ("healthy", "frozen"):
        rows = WRITERS[writer](folder / kind / "source", frozen=kind == "frozen")
        _json_lines(folder / kind / "rows" / "metrics.jsonl", rows)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
