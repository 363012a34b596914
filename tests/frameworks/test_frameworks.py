"""Every framework's data file is held against lines as that framework prints them, read by the real readers.

The lines in ``lines/`` are written by hand after each framework's source; the expected values are those lines' numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow, Stream
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.frameworks.resolver import Resolved, Resolver
from grpo_watch.sources.base import Source
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.rows.jsonl import JsonlSource

LINES = Path(__file__).parent / "lines"
FILES = sorted(path for path in LINES.iterdir() if path.suffix in {".log", ".jsonl"})


def read(path: Path) -> tuple[list[RawRow], Source]:
    reader = JsonlSource if path.suffix == ".jsonl" else ConsoleSource
    source: Source = reader(path.name, path, [path.parent])
    items = [*source.poll(None), *source.finish()]
    source.close()
    return [item for item in items if isinstance(item, RawRow)], source


def resolve(path: Path) -> tuple[list[RawRow], list[Resolved], Resolver]:
    resolver = Resolver("open-r1" if path.stem == "open-r1" else None)
    raws, _ = read(path)
    return raws, [resolver.resolve(row) for row in raws], resolver


def test_every_data_file_has_literal_lines() -> None:
    """A framework whose lines nobody has seen here is refused: write ``lines/NAME.log`` or ``lines/NAME.jsonl``."""
    assert {path.stem for path in FILES} == set(frameworks())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lines_are_recognised_and_nothing_in_them_is_unknown(path: Path) -> None:
    """No row is taken for another framework's, none is lost, and every key is either a metric or known to be none."""
    raws, found, resolver = resolve(path)
    assert raws
    assert resolver.framework == path.stem
    assert resolver.unknown_keys == ()
    assert all(row.values for row in found if row.stream is Stream.TRAIN)


EXPECTED: dict[str, list[dict[str, float | int | None]]] = {
    "openrlhf.log": [
        {"step": 1, "loss": 0.0012, "grad_norm": 0.21, "reward_mean": 0.44, "reward_group_std": 0.31}
        | {"reward_batch_std": 0.49, "kl_reference": 0.0, "kl_policy_update": -1.2e-06, "policy_clip_ratio": 0.0}
        | {"completion_length_mean": 512.25, "completion_truncated_ratio": 0.0625},
        {"step": 2, "learning_rate": 3e-08, "kl_reference": -0.0004, "reward_group_std": 0.25},
    ],
    "verl.log": [
        {"step": 1, "loss": 0.0013, "grad_norm": 0.129638671875, "learning_rate": 1e-06, "reward_mean": 0.4375}
        | {"entropy": 0.323, "kl_reference": 0.0, "kl_policy_update": -8.5e-06, "policy_clip_ratio": 0.0004}
        | {"probability_gap_rollout": 0.003, "kl_rollout": 0.0008, "advantage_max": 1.5, "advantage_min": -1.25}
        | {"completion_length_mean": 512.25, "completion_length_max": 1024.0, "completion_length_min": 17.0}
        | {"completion_truncated_ratio": 0.0625, "turns_mean": 2.0, "step_seconds": 32.75},
        {"step": 1, "reward_mean": None},
    ],
    "nemo-rl.log": [
        {"step": 6, "loss": 0.0021, "kl_rollout": 0.0009, "reward_mean": 0.438, "completion_length_mean": 512.3}
        | {"step_seconds": 61.2},
        {"step": 7, "loss": -0.0004, "reward_mean": 0.45, "step_seconds": 60.0},
    ],
    "nemo-rl.jsonl": [
        {"step": 7, "loss": -0.0004, "reward_mean": 0.45, "kl_reference": 0.0, "kl_rollout": 0.00097}
        | {"probability_error_rollout": 1.0132, "grad_norm": 0.41, "learning_rate": 5e-06, "advantage_max": 1.5}
        | {"advantage_min": -1.25, "completion_truncated_ratio": 0.125, "entropy": 0.62, "step_seconds": 60.0}
    ],
    "prime-rl.log": [
        {"step": 0, "loss": 0.0012, "entropy": 0.41, "kl_rollout": 0.0009, "grad_norm": 0.12, "memory_gib": 60.1},
        {"step": 1, "learning_rate": 1e-06, "loss": -0.0003},
    ],
    "slime.log": [
        {"step": 0, "reward_mean": 0.375, "completion_length_mean": 300.5, "completion_truncated_ratio": 0.25}
        | {"loss": 0.0, "kl_reference": 0.0, "kl_policy_update": 0.0, "logprob_gap_rollout": 0.012, "grad_norm": 0.8},
        {"step": 1, "kl_reference": 0.0002, "kl_policy_update": 0.0003, "learning_rate": 1e-06},
        {"step": 2, "reward_mean": 0.5, "completion_length_mean": 310.5, "completion_truncated_ratio": 0.5}
        | {"step_seconds": 41.5, "learning_rate": 1e-06},
    ],
    "areal.log": [
        {"step": 3, "reward_mean": 0.42188, "completion_length_mean": 610.5, "loss": 0.0012}
        | {"kl_policy_update": -3e-05, "policy_clip_ratio": 0.001, "entropy": 0.33, "grad_norm": 0.21}
        | {"completion_truncated_ratio": 0.0625}
    ],
    "skyrl.log": [
        {"step": 4, "loss": 0.0012, "kl_reference": 0.0006, "logprob_gap_rollout": 0.011, "reward_mean": 0.5}
        | {"entropy": 0.44, "grad_norm": 0.3, "completion_length_mean": 412.5}
    ],
    "roll.log": [
        {"step": 0, "loss": 0.002, "kl_reference": 0.0, "kl_policy_update": 0.0, "policy_clip_ratio": 0.0}
        | {"reward_mean": 0.25}
    ],
    "open-instruct.jsonl": [
        {"step": 3, "loss": 0.002, "reward_mean": 4.5, "kl_reference": 0.0, "grad_norm": 0.5, "advantage_max": 1.5}
        | {"advantage_min": -1.5, "completion_length_mean": 700.0, "policy_clip_ratio": 0.001}
    ],
    "grpo-watch.jsonl": [
        {"step": 4, "reward_mean": 0.5, "reward_group_std": 0.25, "kl_reference": 0.0, "learning_rate": 1e-06}
        | {"grad_norm": 0.25, "reward_function_mean[accuracy]": 0.5, "completion_length_mean": 100.0}
    ],
    "trl.log": [{"step": 5, "reward_mean": 0.4375, "kl_reference": 0.0004, "reward_zero_std_ratio": 0.25}],
    "open-r1.log": [{"step": 5, "reward_group_std": 0.31, "kl_reference": 0.03, "learning_rate": 9.9e-07}],
    "tinker-cookbook.jsonl": [
        {"step": 4, "reward_mean": 0.375, "completion_length_mean": 96.5, "learning_rate": 0.0001, "entropy": 0.52}
        | {"reward_zero_std_ratio": 0.25, "reward_function_mean[correct]": 0.375}
        | {"kl_rollout": 0.0003, "step_seconds": 11.25}
    ],
    "torchforge.jsonl": [
        {"step": 2, "loss": 0.02, "kl_reference": 0.0005, "reward_mean": 0.375}
        | {"reward_function_mean[MathReward]": 0.25, "reward_function_std[MathReward]": 0.5}
    ],
    "trl-ppo.log": [
        {"step": 1, "reward_mean": 2.25, "kl_reference": 5.25, "kl_policy_update": 0.003, "policy_clip_ratio": 0.0125}
        | {"entropy": 1.125, "loss": -0.004},
        {"step": 2, "learning_rate": 9.5e-06},
    ],
    "trl-async.jsonl": [
        {"step": 5, "kl_policy_update": 0.0001, "importance_ratio_rollout": 1.002},
        {"step": 6, "kl_policy_update": 0.0002, "kl_reference": None, "importance_ratio_rollout": 1.003}
        | {"step_seconds": 8.5, "completion_truncated_ratio": 0.125, "reward_function_mean[accuracy]": 0.4375},
    ],
    "unsloth.log": [{"step": 5, "kl_reference": 0.0, "completion_length_mean": 210.5}],
    "axolotl.log": [{"step": 5, "memory_gib": 30.0, "kl_reference": 0.002}],
    "ms-swift.jsonl": [{"step": 5, "reward_group_std": 0.31, "kl_reference": 0.0004, "memory_gib": 30.5}],
}


def test_results_of_nemo_rl_without_the_header_of_their_step(tmp_path: Path) -> None:
    """What is pasted of a log often begins below the header; a title of another program holds no line back."""
    bare = [line for line in (LINES / "nemo-rl.log").read_text().splitlines() if "====" not in line]
    path = tmp_path / "train.log"
    path.write_text("\n".join(["Training Results:", "none yet", *bare, ""]))
    found, _ = read(path)
    assert [(row.step, row.values["Loss"]) for row in found] == [(1, 0.0021), (2, -0.0004)]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_values_of_the_lines(name: str) -> None:
    """Each number of the lines under its canonical name; a key that must be absent is None here."""
    raws, found, _ = resolve(LINES / name)
    assert len(found) == len(EXPECTED[name])
    for raw, row, expected in zip(raws, found, EXPECTED[name], strict=True):
        assert raw.step == expected["step"]
        values = {"step": raw.step, **row.values}
        assert {key: values.get(key) for key in expected} == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", ["openrlhf", "nemo-rl", "roll", "open-instruct", "unsloth"])
def test_a_kl_that_is_written_without_a_reference_proves_nothing(name: str) -> None:
    """There 0.0 is logged when no KL is computed: the resolver says so, and the rule asks instead of firing."""
    paths = [path for path in FILES if path.stem == name]
    said = [row.config for path in paths for row in resolve(path)[1] if row.config is not None]
    assert said
    assert all(config.settings["kl_implies_beta"].value is False for config in said)


def test_the_entropy_that_open_instruct_did_not_record_is_absent() -> None:
    """It writes 0.0, which would look like a collapse."""
    _, found, _ = resolve(LINES / "open-instruct.jsonl")
    assert "entropy" not in found[0].values


def test_a_step_that_was_recomputed_in_a_rollout_belongs_to_one_row() -> None:
    """slime prints what the rollout gave and what the step gave in two lines: one row of training."""
    raws, found, _ = resolve(LINES / "slime.log")
    assert [row.stream for row in found] == [Stream.TRAIN] * 3
    assert "rollout/raw_reward" in raws[0].values
    assert "rollout/raw_reward" not in raws[1].values


@pytest.mark.parametrize(("name", "step"), [("nemo-rl.log", 1e-4), ("prime-rl.log", 1e-4), ("openrlhf.log", None)])
def test_rounded_consoles_say_so(name: str, step: float | None) -> None:
    """A zero of four decimals is no zero."""
    raws, _ = read(LINES / name)
    assert {row.resolution for row in raws} == {step}
