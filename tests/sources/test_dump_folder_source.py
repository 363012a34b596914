"""Rollout dumps of both generations of verl's trainers; groups, sizes and rewards counted by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_watch.engine.records import CompletionSummary, Cursor, Item, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.completions import rollout_dumps
from grpo_watch.sources.completions.rollout_dumps import CompletionDumpsSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover


def row(prompt: str, text: str, score: float = 0.0, step: int = 1, **more: object) -> str:
    return json.dumps({"input": prompt, "output": text, "gts": "4", "score": score, "step": step, **more}) + "\n"


def source_of(folder: Path, size: int | None = None, cursor: Cursor | None = None) -> CompletionDumpsSource:
    return CompletionDumpsSource("rollouts/*.jsonl", folder, [folder], lambda: size, cursor=cursor)


def summaries(items: Sequence[Item]) -> list[CompletionSummary]:
    return [item for item in items if isinstance(item, CompletionSummary)]


def read(folder: Path, size: int | None = None) -> list[CompletionSummary]:
    source = source_of(folder, size)
    return summaries([*source.poll(None), *source.finish()])


BALANCED = [row("a", "x", 1.0, acc=1.0), row("b", "u"), row("a", "y"), row("b", "u"), row("a", "x", 1.0), row("b", "v")]


def test_rows_in_balanced_order_are_grouped_by_prompt(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text("".join(BALANCED))
    (summary,) = read(tmp_path, 3)
    assert (summary.step, summary.complete, summary.stream) == (7, True, Stream.TRAIN)
    assert [group.pattern for group in summary.groups] == [(0, 1, 0), (0, 0, 1)]
    assert summary.groups[0].rewards == {"score": (1.0, 0.0, 1.0), "acc": (1.0, None, None)}


def test_a_prompt_that_is_in_the_batch_twice_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("".join([*BALANCED, row("b", "w"), row("b", "w"), row("b", "w")]))
    (summary,) = read(tmp_path, 3)
    assert [group.size for group in summary.groups] == [3]


def test_a_configured_size_that_no_prompt_has(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("".join(BALANCED))
    (summary,) = read(tmp_path, 8)
    assert (summary.complete, summary.groups) == (False, ())
    assert summary.reason == "no prompt has 8 completions, but 2 x 3"


PAD = "pad" + "0" * 32


def test_uids_give_groups_and_padding_is_no_completion(tmp_path: Path) -> None:
    rows = [
        row("a", "x", uid="aaaa-1_0_0"),
        row("a", "y", uid="aaaa-1_1_0"),
        row("a", "z", uid="bbbb-2_0_0"),
        *(row("", "", uid=f"{PAD}_{i}_0") for i in range(4)),
    ]
    (tmp_path / "1.jsonl").write_text("".join(rows))
    (summary,) = read(tmp_path, 2)
    assert [(group.size, group.empty) for group in summary.groups] == [(2, 0), (1, 0)]


def test_of_an_agent_that_answers_several_times_the_last_answer_counts(tmp_path: Path) -> None:
    rows = [
        row("a", "tool", 0.0, uid="g_0_0"),
        row("a tool result", "second", 0.5, uid="g_0_10"),
        row("a tool", "first", 0.1, uid="g_0_2"),
        row("a", "other", 1.0, uid="g_1_0"),
    ]
    (tmp_path / "1.jsonl").write_text("".join(rows))
    (summary,) = read(tmp_path)
    (group,) = summary.groups
    assert (group.size, group.prompts, group.rewards["score"]) == (2, 1, (0.5, 1.0))
    assert group.lengths == (len("second"), len("other"))


def test_validation_is_evaluation(tmp_path: Path) -> None:
    for folder, steps in (("val_data", (5,)), ("dumps", (0, 5)), ("evaluate_me", (5,))):
        (tmp_path / folder).mkdir()
        for step in steps:
            (tmp_path / folder / f"{step}.jsonl").write_text(row("a", f"x{step}") + row("a", "y"))
    reported = {folder: read(tmp_path / folder)[-1].stream for folder in ("val_data", "dumps", "evaluate_me")}
    assert reported == {"val_data": Stream.EVAL, "dumps": Stream.EVAL, "evaluate_me": Stream.TRAIN}


def test_a_file_that_still_grows_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    path.write_text(row("a", "x"))
    source = source_of(tmp_path)
    assert summaries(list(source.poll(1.0))) == []
    path.write_text(row("a", "x") + row("a", "y"))
    assert summaries(list(source.poll(2.0))) == []
    (summary,) = summaries(list(source.poll(3.0)))
    assert summary.groups[0].size == 2


def test_a_file_cut_off_is_counted_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(row("a", "x") + row("a", "y"))
    (tmp_path / "2.jsonl").write_text(row("a", "z") + row("a", "y")[:20])
    source = source_of(tmp_path)
    assert [one.step for one in summaries([*source.poll(None), *source.finish()])] == [1]
    assert source.stats.skipped == {Skip.TRUNCATED: 1}
    assert source.stats.first_bad == "truncated: 2.jsonl: line 2: not complete yet"


def test_a_file_with_too_many_rows_is_reported_once_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither at later polls nor after a restart."""
    (tmp_path / "1.jsonl").write_text(row("a", "x") + row("a", "y"))
    monkeypatch.setattr(rollout_dumps, "MAX_ROWS", 1)
    source = source_of(tmp_path)
    for _ in range(40):
        assert list(source.poll(1.0)) == []
    again = source_of(tmp_path, cursor=source.cursor())
    assert [*again.poll(None), *again.finish()] == []
    assert source.stats.skipped == {Skip.TOO_LONG: 1}
    assert source.stats.first_bad == "too-long: 1.jsonl: more than 1 completions"
    assert [record.message for record in caplog.records] == ["a file is not read"]


def test_steps_written_again_after_a_resume_are_read_again(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"{step}.jsonl").write_text(row("a", f"x{step}") + row("a", "y"))
    source = source_of(tmp_path)
    assert [one.step for one in summaries(list(source.poll(None)))] == [1, 2]
    (tmp_path / "2.jsonl").write_text(row("b", "another") + row("b", "text"))
    again = summaries(list(source.poll(None)))
    assert [(one.step, one.stream) for one in again] == [(2, Stream.TRAIN)]


@pytest.mark.parametrize("taken", range(4))
def test_a_restart_after_any_step(tmp_path: Path, taken: int) -> None:
    for step in (1, 2, 10):
        (tmp_path / f"{step}.jsonl").write_text(row("a", f"x{step}") + row("a", "y"))
    source = source_of(tmp_path)
    first = [item for _, item in zip(range(taken), source.poll(None), strict=False)]
    again = source_of(tmp_path, cursor=source.cursor())
    got = summaries([*first, *again.poll(None), *again.finish()])
    assert [one.step for one in got] == [1, 2, 10]


def test_a_folder_of_something_else_is_reported(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"question": "a"}\n')
    source = source_of(tmp_path)
    assert [*source.poll(None), *source.finish()] == []
    assert "no file begins like a dump" in source.stats.first_bad


def test_dumps_belong_to_the_run_above_them(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step:1 - actor/pg_loss:0.1 - critic/score/mean:0.5\n")
    (tmp_path / "out" / "rollout_data").mkdir(parents=True)
    for step in range(1, 40):
        (tmp_path / "out" / "rollout_data" / f"{step}.jsonl").write_text(row("a", "x") + row("a", "y"))
    (run,) = discover(tmp_path)
    found = {channel.name: channel.what for channel in run.channels if channel.what is not ChannelContent.RUN_CONFIG}
    assert found == {"train.log": ChannelContent.CONSOLE, "out/rollout_data/*.jsonl": ChannelContent.COMPLETION_DUMPS}


def nemo(prompt: str, text: str, reward: float, at: int, **more: object) -> str:
    """A row as NeMo-RL logs it: messages, padded token lists, no prompt id."""
    tokens = {"token_ids": [[5, 6, 0, 0]], "token_loss_mask": [[0, 1, 0, 0]], "advantages": [[0.5] * 4]}
    return json.dumps({"content": [prompt, text], "rewards": reward, "idx": at, **tokens, **more}) + "\n"


def test_nemo_rls_samples_are_grouped_by_prompt(tmp_path: Path) -> None:
    """`train_data_step{N}.jsonl` lies beside `val_data_step{N}.jsonl`, which is evaluation and not read."""
    rows = [("a", "x", 1.0), ("a", "x", 1.0), ("a", "y", 0.0), ("b", "u", 0.0), ("b", "v", 0.0), ("b", "w", 0.0)]
    text = "".join(nemo(*row, at) for at, row in enumerate(rows))
    (tmp_path / "train_data_step12.jsonl").write_text(text)
    (tmp_path / "val_data_step10.jsonl").write_text(nemo("v", "v", 0.0, 0))
    (summary,) = read(tmp_path)
    assert (summary.step, summary.complete, summary.stream) == (12, True, Stream.TRAIN)
    assert [group.pattern for group in summary.groups] == [(0, 0, 1), (0, 1, 2)]
    assert summary.groups[0].rewards == {"reward": (1.0, 1.0, 0.0), "advantage": (0.5, 0.5, 0.5)}
    assert summary.groups[0].lengths == (1, 1, 1)  # the prompt is no part of the completion


def test_nemo_rls_advantages_are_one_per_sample_and_none_where_it_is_masked(tmp_path: Path) -> None:
    """They stand on every token, and may be negative; the second sample is left out of the loss."""
    rows = [("a", "x", 1.0, 0.5, 1.0), ("a", "y", 1.0, 0.5, 0.0), ("a", "z", 0.0, -1.0, 1.0)]
    text = "".join(
        nemo(prompt, completion, reward, at, advantages=[[advantage] * 3], sample_loss_mask=mask)
        for at, (prompt, completion, reward, advantage, mask) in enumerate(rows)
    )
    (tmp_path / "train_data_step1.jsonl").write_text(text)
    (summary,) = read(tmp_path)
    assert summary.groups[0].rewards == {"reward": (1.0, 1.0, 0.0), "advantage": (0.5, None, -1.0)}


def test_nemo_rls_conversations_of_several_turns_are_no_evidence(tmp_path: Path) -> None:
    """Nothing says where their prompt ends: blind, with a reason."""
    row = json.dumps({"content": ["q", "call", "result", "answer"], "rewards": 1.0, "idx": 0}) + "\n"
    (tmp_path / "train_data_step1.jsonl").write_text(row * 4)
    (summary,) = read(tmp_path)
    assert (summary.groups, summary.complete, summary.reason) == ((), False, "an empty table")


def test_rolls_columns_are_one_line_per_step(tmp_path: Path) -> None:
    columns = {"id": ["p1", "p2", "p1", "p2"], "responses": ["x", "u", "x", "v"], "scores": [1.0, 0.0, 1.0, 0.5]}
    dump = {"global_step": [0] * 4, "prompt": ["a", "b", "a", "b"], "domain": ["math"] * 4, **columns}
    (tmp_path / "rollout_dump_data.step_0.jsonl").write_text(json.dumps(dump) + "\n")
    (summary,) = read(tmp_path)
    assert (summary.step, summary.stream) == (0, Stream.TRAIN)
    assert [group.pattern for group in summary.groups] == [(0, 0), (0, 1)]
    assert summary.groups[1].rewards == {"score": (0.0, 0.5)}


@pytest.mark.parametrize("name", ["train_data_step12.jsonl", "rollout_dump_data.step_0.jsonl"])
def test_dumps_of_other_frameworks_are_found(tmp_path: Path, name: str) -> None:
    line = nemo("a", "x", 1.0, 0) if "train" in name else '{"id": ["a"], "responses": ["x"], "scores": [1.0]}\n'
    (tmp_path / name).write_text(line)
    (run,) = discover(tmp_path)
    assert ChannelContent.COMPLETION_DUMPS in {channel.what for channel in run.channels}
