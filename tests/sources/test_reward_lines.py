"""JSON lines of a step and a reward under the writer's own names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import Discoverer


def content_of(folder: Path, rows: list[dict[str, object]]) -> list[ChannelContent]:
    (folder / "curve.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [channel.what for run in Discoverer().discover(folder) for channel in run.channels]


def test_a_curve_of_rewards_is_a_log(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"step": n, "epr": 0.25, "mean_reward": n / 10} for n in range(5)]
    assert ChannelContent.JSONL in content_of(tmp_path, rows)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([{"step": n // 4, "mean_reward": 0.5, "prompt_id": n} for n in range(20)], id="completions"),
        pytest.param([{"step": n, "accuracy": 0.5} for n in range(5)], id="no reward"),
        pytest.param([{"mean_reward": 0.5, "run": n} for n in range(5)], id="no step"),
        pytest.param([{"step": n, "mean_reward": 0.5} for n in range(3)], id="three rows"),
    ],
)
def test_what_is_no_curve_of_rewards(rows: list[dict[str, object]], tmp_path: Path) -> None:
    assert content_of(tmp_path, rows) == []
