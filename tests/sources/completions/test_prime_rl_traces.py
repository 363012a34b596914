"""prime-rl's episodes, one folder per step, as verifiers 0.4 records them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import CompletionSummary, Stream, Tick
from grpo_watch.pipeline.offline import read_run
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.completions.rollout_dumps import CompletionDumpsSource
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from tests.support.channel import restarted, rows, whole


def trace(text: str, score: float | None, *, trainable: bool = True) -> dict[str, Any]:
    nodes = [
        {"message": {"role": "system", "content": "Be brief."}},
        {"parent": 0, "message": {"role": "user", "content": "2+2?"}},
        {"parent": 1, "message": {"role": "assistant", "content": text}, "sampled": True, "token_ids": [1, 2]},
        {"parent": 2, "message": {"role": "tool", "tool_call_id": "a", "content": "no such tool"}},
        {"parent": 3, "message": {"role": "assistant", "content": "done"}, "sampled": True},
    ]
    rewards = {"correct": {"score": score, "weight": 1.0}, "format": {"score": 1.0, "weight": 0.5}}
    return {
        "version": 1,
        "task": {"type": "T", "data": {}},
        "agent": {"name": "agent", "trainable": trainable, "config": {}},
        "nodes": nodes,
        "rewards": {} if score is None else rewards,
    }


def episode(group: str, *traces: dict[str, Any]) -> str:
    task = {"type": "T", "data": {}}
    return json.dumps({"id": group, "task": task, "group": {"id": group}, "ok": True, "traces": traces})


def dumped(run: Path, step: int, *texts: str, subset: str = "effective", kind: str = "train") -> None:
    """Groups of two attempts, one right and one wrong; a judge's trace beside each."""
    folder = run / "rollouts" / f"step_{step}" / kind / subset
    folder.mkdir(parents=True)
    lines = [
        episode(f"{step}-{at // 2}", trace(text, float(at % 2)), trace("I judge", None, trainable=False))
        for at, text in enumerate(texts)
    ]
    (folder / "traces.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def summaries(run: Path) -> list[CompletionSummary]:
    found = whole(lambda cursor: CompletionDumpsSource("dumps", run / "rollouts", [run], lambda: 2, cursor=cursor))
    return [item for item in found if isinstance(item, CompletionSummary)]


def test_groups_of_each_step(tmp_path: Path) -> None:
    for step in (0, 1, 10):
        dumped(tmp_path, step, "4", "5" * (step + 1), "6", "7")
        dumped(tmp_path, step, "4", subset="all")
    found = summaries(tmp_path)
    assert [(summary.step, summary.stream, len(summary.groups)) for summary in found] == [
        (0, Stream.TRAIN, 2), (1, Stream.TRAIN, 2), (10, Stream.TRAIN, 2),
    ]  # fmt: skip
    group = found[0].groups[0]
    assert group.size == 2
    assert group.rewards == {"reward": (0.5, 1.5), "correct": (0.0, 1.0), "format": (0.5, 0.5)}
    assert group.lengths == (len("4\ndone"), len("5\ndone"))


def failed(run: Path, step: int, *ok: bool) -> None:
    """All attempts of a step; the last one ended before it had a trace."""
    folder = run / "rollouts" / f"step_{step}" / "train" / "all"
    folder.mkdir(parents=True)
    lines = [episode("g", {**trace("4", float(one)), "ok": one}) for one in ok]
    lines.append(json.dumps({"id": "x", "task": {}, "ok": False, "traces": []}))
    (folder / "traces.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_attempts_that_failed_are_a_share_of_all(tmp_path: Path) -> None:
    """Only those that succeeded are among the completions; without metrics beside them it is all that is known."""
    for step in (0, 1):
        dumped(tmp_path, step, "4", "5" * (step + 1))
    failed(tmp_path, 0, True, True, False)
    found = whole(lambda cursor: CompletionDumpsSource("dumps", tmp_path / "rollouts", [tmp_path], cursor=cursor))
    assert [(row.step, row.values) for row in rows(found)] == [(0, {"rollouts/errors": 0.5})]
    assert [item.step for item in found if isinstance(item, CompletionSummary)] == [0, 1]
    (run,) = discover(tmp_path)
    read = read_run(run, load_rules([]), catalogue(), Tick(2e9, live=False), Settings(), {})
    assert read.pipeline.snapshot().values["tool_failure_ratio"] == 0.5


def test_a_restart_after_any_step_changes_nothing(tmp_path: Path) -> None:
    for step in (0, 1, 2):
        dumped(tmp_path, step, "4", "5" * (step + 1))
    opens = lambda cursor: CompletionDumpsSource("dumps", tmp_path / "rollouts", [tmp_path], lambda: 2, cursor=cursor)  # noqa: E731
    assert restarted(opens) == whole(opens)


def test_one_channel_of_the_run_however_many_steps(tmp_path: Path) -> None:
    row = '{"step": 0, "optim/lr": 1e-06, "optim/grad_norm": 0.1}\n'
    (tmp_path / "metrics.jsonl").write_text(row, encoding="utf-8")
    for step in range(40):
        dumped(tmp_path, step, "4", f"5 at {step}")
        dumped(tmp_path, step, "4", "5", kind="eval")
    (run,) = discover(tmp_path)
    (channel,) = [channel for channel in run.channels if channel.what is ChannelContent.COMPLETION_DUMPS]
    assert channel.path == tmp_path / "rollouts"
    assert len(summaries(tmp_path)) == 40
