"""tinker-cookbook's rollout summaries; those in ``tinker/`` were written by its own store (0.6.1)."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import grpo_watch
from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import Tick
from grpo_watch.frameworks.tinker_cookbook.dumps import DUMPS
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions.rollout_dumps import CompletionDumpsSource
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from tests.support.channel import restarted, rows, whole

WRITTEN = Path(__file__).with_name("tinker")
SUMMARIES = "iteration_{:06}/train_rollout_summaries.jsonl"
# Two groups of three: rewards 1, 1, 0 and -0.1, 0, -0.5; one of six was cut at 20 tokens; of four calls two failed,
# and a fifth could not be parsed. The weights of the sampler are those of iteration 0.
EXPECTED = {
    "rollouts/reward/std": pytest.approx(((1 / 3) ** 0.5 + 0.07**0.5) / 2),
    "rollouts/truncated": pytest.approx(1 / 6),
    "rollouts/ac_tokens/max": 20,
    "rollouts/tool_calls": pytest.approx(5 / 6),
    "rollouts/tool_failures": pytest.approx(3 / 5),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "run"))


def source(run: Path, cursor: Any = None, longest: float | None = 20.0) -> CompletionDumpsSource:
    return CompletionDumpsSource("summaries", run, [run], cursor=cursor, longest=lambda: longest)


def test_each_file_gives_the_row_of_its_step(run: Path) -> None:
    found = rows(whole(lambda cursor: source(run, cursor)))
    assert [(row.step, row.values) for row in found] == [
        (step, {**EXPECTED, "rollouts/staleness": float(step)}) for step in (0, 1)
    ]
    assert restarted(lambda cursor: source(run, cursor)) == found


def test_the_run_is_one_with_its_metrics_and_settings(run: Path) -> None:
    (found,) = discover(run)
    assert (found.framework, {channel.what for channel in found.channels}) == (
        "tinker-cookbook",
        {ChannelContent.JSONL, ChannelContent.ROLLOUT_SUMMARIES, ChannelContent.RUN_CONFIG},
    )
    last = grpo_watch.check(run).metrics.iloc[-1]
    assert last["completion_truncated_ratio"] == pytest.approx(1 / 6)
    assert (last["sample_staleness_steps"], last["grad_norm"]) == (1.0, 12.5)


def test_a_file_that_is_still_written_is_waited_for(run: Path) -> None:
    path = run / SUMMARIES.format(1)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    live = source(run)
    got = [row.step for _ in range(3) for row in rows(list(live.poll(1.0)))]
    path.write_bytes(data)
    got += [row.step for _ in range(2) for row in rows(list(live.poll(2.0)))]
    assert got == [0, 1]
    path.write_bytes(data[:-40])
    torn = source(run)
    assert [row.step for row in rows([*torn.poll(None), *torn.finish()])] == [0]
    assert torn.stats.skipped == {Skip.TRUNCATED: 1}


def test_an_episode_that_failed_hides_no_other() -> None:
    """Its reward is NaN, infinite or missing, its turns lack what others have."""
    assert DUMPS.measure is not None
    good = [episode(9, {}, 1.0), episode(9, {}, 0.0)]
    bad = [episode(0, {}, reward) for reward in (float("nan"), float("-inf"))]
    bad += [{**episode(0, {}), "total_reward": None, "steps": None}, {**episode(0, {}), "steps": [{}]}]
    bad[-1]["total_reward"] = None
    row = DUMPS.measure([*good, *bad], None)
    assert row == {"rollouts/reward/std": pytest.approx(0.5**0.5), "rollouts/ac_tokens/max": 9}


@pytest.mark.parametrize("wrong", [{"total_reward": "high"}, {"group_idx": []}, {"steps": [7]}])
def test_a_line_of_another_kind_is_named(wrong: dict[str, object], run: Path) -> None:
    path = run / SUMMARIES.format(1)
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | wrong)
    path.write_text("\n".join(lines) + "\n")
    read = source(run)
    assert [row.step for row in rows([*read.poll(None), *read.finish()])] == [0]
    assert "line 2: not as tinker-cookbook writes it" in read.stats.first_bad


def episode(tokens: int, metrics: dict[str, float], reward: float = 1.0) -> dict[str, Any]:
    turn = {"ac_len": tokens, "metrics": metrics, "logs": {}}
    facts = {"iteration": 3, "sampling_client_step": None, "group_idx": 0, "total_reward": reward}
    return {**facts, "steps": [turn]}


@pytest.mark.parametrize(
    ("longest", "metrics", "cut"),
    [(64.0, {}, 0.5), (None, {}, None), (None, {"stop/completed": 1.0}, 0.0), (128.0, {}, 0.0)],
)
def test_how_many_were_cut_is_only_said_where_something_says_it(
    longest: float | None, metrics: dict[str, float], cut: float | None
) -> None:
    assert DUMPS.measure is not None
    row = DUMPS.measure([episode(64, metrics), episode(9, metrics)], longest)
    assert row.get("rollouts/truncated") == cut
    assert row.keys().isdisjoint({"rollouts/staleness", "rollouts/tool_calls", "rollouts/tool_failures"})


def written(folder: Path, kind: str, *, lines: bool) -> None:
    """A run of 60 steps, as tinker-cookbook writes it or as lines of plain names."""
    chance = random.Random(3)
    folder.mkdir()
    (folder / "config.json").write_bytes((WRITTEN / "config.json").read_bytes())
    made = []
    for step in range(60):
        rewards = [[float(chance.random() < 0.5) for _ in range(4)] + [0.0, 1.0] for _ in range(4)]
        reward, length = sum(map(sum, rewards)) / 24, 12 + chance.random()
        norm = 0.0 if kind == "frozen" else 8 + chance.random()
        cut = kind == "cut"
        episodes = [
            {**episode(20 if cut else 15, {"correct": one}, one), "group_idx": at}
            for at, group in enumerate(rewards)
            for one in group
        ]
        row = {"step": step, "env/all/reward/total": reward, "env/all/by_group/frac_mixed": 1.0, "optim/lr": 1e-4}
        row |= {"env/all/ac_tokens_per_turn": length, "optim/entropy": 0.5, "unclipped_grad_l2:mean": norm}
        plain = {"step": step, "reward": reward, "reward_zero_std_ratio": 0.0, "learning_rate": 1e-4}
        plain |= {
            "completion_length_mean": length,
            "entropy": 0.5,
            "grad_norm": norm,
            "completion_length_max": 20 if cut else 15,
        }
        made.append(plain | {"completion_truncated_ratio": float(cut)} if lines else row)
        if not lines:
            path = folder / SUMMARIES.format(step)
            path.parent.mkdir()
            path.write_text("".join(f"{json.dumps(one)}\n" for one in episodes))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in made))


@pytest.mark.parametrize(
    ("kind", "rules"), [("healthy", set()), ("frozen", {"gradient-lost"}), ("cut", {"completions-truncated"})]
)
def test_the_same_findings_as_of_json_lines(kind: str, rules: set[str], tmp_path: Path) -> None:
    found = []
    for lines in (False, True):
        folder = tmp_path / f"lines-{lines}"
        written(folder, kind, lines=lines)
        (report,) = check_runs(find_runs([str(folder)])[0], load_rules([]), {}, Tick(2e9, live=False))
        (one,) = document([report])["runs"]
        found.append(
            [(each["rule"], each["severity"], each["first_step"], each["fired_step"]) for each in one["findings"]]
        )
    assert found[0] == found[1]
    assert {rule for rule, *_ in found[0]} == rules
