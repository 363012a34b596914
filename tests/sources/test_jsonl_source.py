"""Dumps of completions (real and hand-made) become one summary per generation batch, whatever the file holds."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import CompletionSummary, Cursor, Stream
from grpo_watch.sources.base import Skip, Source
from grpo_watch.sources.completions import completion_folder
from grpo_watch.sources.completions import parquet as parquet_module
from grpo_watch.sources.completions.jsonl_source import MAX_LINE, CompletionsJsonlSource
from grpo_watch.sources.completions.parquet import CompletionsParquetSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.step_folder import DeferredWork

REAL = Path(__file__).parent / "completions"
Opener = Callable[..., CompletionsJsonlSource]


def unknown() -> int | None:
    return None


def jsonl(path: Path, size: Callable[[], int | None] = unknown, cursor: Cursor | None = None) -> CompletionsJsonlSource:
    return CompletionsJsonlSource("completions.jsonl", path, [path.parent], size, 0, cursor)


def parquet(folder: Path, cursor: Cursor | None = None, **more: Any) -> CompletionsParquetSource:
    return CompletionsParquetSource("completions", folder, [folder.parent], unknown, 0, cursor, **more)


def drain(source: Source) -> list[CompletionSummary]:
    found = [*source.poll(None), *source.finish()]
    source.close()
    assert all(isinstance(item, CompletionSummary) for item in found)
    return [item for item in found if isinstance(item, CompletionSummary)]


def table(step: int, texts: list[str], prompts: list[str] | None = None, **columns: list[Any]) -> str:
    prompts = prompts or ["p"] * len(texts)
    row = {"step": [str(step)] * len(texts), "prompt": prompts, "completion": texts, **columns}
    return json.dumps(row) + "\n"


def patterns(summary: CompletionSummary) -> list[tuple[int, ...]]:
    return [group.pattern for group in summary.groups]


def test_ms_swift_4_with_a_shared_seed_repeats_with_a_stride() -> None:
    """ms-swift 4.6.0, G = 6, text i equals text i + 3 in every group; step 3 holds two empty texts."""
    first, second, third = drain(jsonl(REAL / "swift-4.6.0-stride" / "completions.jsonl"))
    assert [summary.step for summary in (first, second, third)] == [1, 2, 3]
    for summary in (first, second, third):
        assert patterns(summary) == [(0, 1, 2, 0, 1, 2)] * 2
        assert summary.complete
        assert summary.stream is Stream.TRAIN
    assert first.groups[0].lengths == (28, 62, 58, 28, 62, 58)
    assert [group.empty for group in third.groups] == [2, 0]
    assert first.groups[0].rewards["MyReward"][:2] == (0.3214285671710968, 0.5403226017951965)
    assert first.groups[0].rewards["advantage"][0] == pytest.approx(-1.28756, abs=1e-5)
    assert "solution" not in first.groups[0].rewards


def test_ms_swift_reused_generation_is_dumped_four_times_and_emitted_once() -> None:
    source = jsonl(REAL / "swift-4.6.0-reuse" / "completions.jsonl", lambda: 6)
    assert [summary.step for summary in drain(source)] == [1, 5, 9]
    assert source.stats.skipped == {Skip.DUPLICATE: 6}


def test_ms_swift_3_ends_with_a_copy_of_its_last_table() -> None:
    source = jsonl(REAL / "swift-3.12.6" / "completions.jsonl")
    (summary,) = drain(source)
    assert summary.step == 80
    assert summary.groups[0].lengths[0] == 35
    assert source.stats.skipped == {Skip.DUPLICATE: 1}


def test_second_table_of_a_step_is_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(table(20, ["a", "b"]) + table(20, ["c", "d"]) + table(21, ["e", "f"]))
    assert [(one.step, one.stream) for one in drain(jsonl(path))] == [
        (20, Stream.TRAIN),
        (20, Stream.EVAL),
        (21, Stream.TRAIN),
    ]


def test_schema_per_generation_has_several_train_tables_per_step(tmp_path: Path) -> None:
    """ms-swift 3.1 and 3.2: ``messages`` instead of ``prompt``, one table per generation."""
    path = tmp_path / "completions.jsonl"
    rows = [
        {
            "step": ["10"] * 4,
            "messages": [[{"role": "user", "content": question}] for question in ("q", "q", "r", "r")],
            "completion": [f"{number} {one}" for one in range(4)],
            "reward": [1.0, 0.0, 0.5, 0.25],
        }
        for number in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = drain(jsonl(path))
    assert first.stream is second.stream is Stream.TRAIN
    assert [group.rewards["reward"] for group in first.groups] == [(1.0, 0.0), (0.5, 0.25)]


def test_schema_of_megatron_counts_generations(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    row = {
        "gen_step": [7, 7],
        "prompt": ["p", "p"],
        "completion": ["a", "b"],
        "Acc": [1.0, None],
        "advantages": [1, -1],
    }
    path.write_text(json.dumps(row) + "\n")
    (summary,) = drain(jsonl(path))
    assert summary.step == 7
    assert summary.groups[0].rewards == {"Acc": (1.0, None), "advantage": (1.0, -1.0)}


def ray_rows(steps: int, group: int = 3) -> list[str]:
    return [
        json.dumps({"gen_step": step, "prompt": "p", "completion": f"{step} {one % 2}", "reward": one / 2}) + "\n"
        for step in range(1, steps + 1)
        for one in range(group)
    ]


def test_schema_of_ray_is_one_row_per_completion(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(ray_rows(2)))
    source = jsonl(path, lambda: 3)
    live = list(source.poll(5.0))
    assert [item.step for item in live if isinstance(item, CompletionSummary)] == [1], "step 2 may still grow"
    (rest,) = source.finish()
    assert isinstance(rest, CompletionSummary)
    assert patterns(rest) == [(0, 1, 0)]
    assert rest.groups[0].rewards == {"reward": (0.0, 0.5, 1.0)}
    assert rest.seen == 5.0


def test_a_reward_that_the_last_rows_lack_is_missing_and_not_misaligned(tmp_path: Path) -> None:
    """Each row names its own rewards, so that none can belong to another row; a text is no score."""
    scores: list[dict[str, Any]] = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": "nan"}, {"a": None}, {"a": 4.0}]
    rows = [{"step": 1, "prompt": "p", "completion": str(at)} | one for at, one in enumerate(scores)]
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = drain(jsonl(path, lambda: 4))
    assert found.odd == ()
    assert found.groups[0].rewards == {"a": (1.0, 3.0, None, 4.0), "b": (2.0, None, None, None)}


@pytest.mark.parametrize("step", [10**12, 10**30, "9" * 13])
def test_a_step_that_no_run_reaches_is_none(tmp_path: Path, step: Any) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(json.dumps({"step": [step] * 2, "prompt": ["p"] * 2, "completion": ["a", "b"]}) + "\n")
    source = jsonl(path)
    assert drain(source) == []
    assert source.stats.skipped == {Skip.NO_STEP: 1}


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12))
def test_restart_between_any_two_items_loses_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, written: int, taken: int
) -> None:
    """Whatever was written when the first reader ran, and wherever it stopped."""
    tables = [table(step, [f"{step // 2} {one}" for one in range(2)]) for step in range(1, 6)]
    lines = [*tables, *ray_rows(4)]
    path = tmp_path_factory.mktemp("run") / "completions.jsonl"
    path.write_text("".join(lines))
    whole = drain(jsonl(path, lambda: None))
    path.write_text("".join(lines[:written]))
    first = jsonl(path)
    got = [item for _, item in zip(range(taken), first.poll(None), strict=False)]
    cursor = first.cursor()
    first.close()
    path.write_text("".join(lines))
    assert [*got, *drain(jsonl(path, cursor=cursor))] == whole


def test_input_that_is_no_table_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    bad = [
        b"\x7fELF\x02\x01\x00\xff\xfe",
        b"[1, 2]",
        b'{"loss": 1.0}',
        b'{"step": ["x"], "prompt": ["p"], "completion": ["c"]}',
        b'{"step": ["1"], "prompt": "p", "completion": ["c"]}',
        b'{"step": ["1"], "prompt": ["p"], "completion": ' + b"[" * 5000,
        b'{"step": [1], "prompt": ["p"], "completion": [' + b"[" * 900 + b"]" * 900 + b"]}",
    ]
    good = table(3, ["a", "b"], f=[float("nan"), 1.0]).encode()
    path.write_bytes(b"\n".join(bad) + b"\n" + good)
    source = jsonl(path)
    summary = drain(source)[-1]
    assert summary.step == 3
    assert summary.groups[0].rewards == {"f": (None, 1.0)}
    assert source.stats.skipped[Skip.NOT_JSON] == 2
    assert source.stats.skipped[Skip.NOT_A_ROW] == 3
    assert source.stats.skipped[Skip.NO_STEP] == 1
    assert source.stats.first_bad.startswith("not-json: line at byte 0")


def test_huge_line_is_refused_and_the_next_one_read(tmp_path: Path) -> None:
    """A sparse file: 200 MB of zeros inside a line must not be held in memory."""
    path = tmp_path / "completions.jsonl"
    with path.open("wb") as file:
        file.write(b'{"step": ["1"], "prompt": ["')
        file.truncate(200_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b'"]}\n' + table(2, ["a", "b"]).encode())
    source = jsonl(path)
    tracemalloc.start()
    (summary,) = drain(source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary.step == 2
    assert peak < 3 * MAX_LINE
    assert source.stats.skipped == {Skip.TOO_LONG: 1}
    assert source.stats.first_bad == f"too-long: line at byte 0: longer than {MAX_LINE >> 20} MiB"


def test_link_out_of_the_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "secret.jsonl").write_text(table(1, ["a", "b"]))
    path = tmp_path / "run" / "completions.jsonl"
    path.symlink_to(tmp_path / "secret.jsonl")
    source = jsonl(path)
    assert drain(source) == []
    assert "out of the run folder" in source.stats.problem


def test_unrecoverable_groups_are_emitted_as_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(table(1, ["a", "b", "c"]))
    (summary,) = drain(jsonl(path, lambda: 2))
    assert not summary.complete
    assert summary.groups == ()
    assert "no multiple of the group size 2" in summary.reason


def test_trl_with_a_shared_seed_repeats_with_a_stride() -> None:
    """TRL 1.16.0, G = 6, two prompts per batch."""
    first, second = drain(parquet(REAL / "trl-1.16.0-stride"))
    assert (first.step, second.step) == (1, 2)
    assert patterns(first) == patterns(second) == [(0, 1, 2, 0, 1, 2)] * 2
    assert first.groups[0].lengths == (16, 12, 13, 16, 12, 13)
    assert first.groups[1].rewards["target_reward"][0] == pytest.approx(2 / 3, abs=1e-6)
    assert set(first.groups[0].rewards) == {"target_reward", "advantage"}
    assert first.groups[0].example == "eidbedbcccicficf"


def test_trl_reused_generation_is_emitted_once() -> None:
    """num_iterations = 2: steps 1 and 2 dump the same batch."""
    source = parquet(REAL / "trl-1.16.0-reuse")
    assert [summary.step for summary in drain(source)] == [1, 3]
    assert source.stats.skipped == {Skip.DUPLICATE: 1}


def test_trl_reward_that_is_nan_becomes_none() -> None:
    (summary,) = drain(parquet(REAL / "trl-1.16.0-nan"))
    assert all(value is None for group in summary.groups for value in group.rewards["nan_reward"])
    assert all(value == 0.0 for group in summary.groups for value in group.rewards["advantage"])


def write_dump(folder: Path, step: int, texts: list[Any], prompt: Any = "p", **columns: list[Any]) -> Path:
    import pyarrow as pa  # noqa: PLC0415  slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    folder.mkdir(exist_ok=True)
    path = folder / f"completions_{step:05d}.parquet"
    rows = len(texts)
    data = {"step": [step] * rows, "prompt": [prompt] * rows, "completion": texts, **columns}
    pq.write_table(pa.table(data), path)
    return path


def test_conversations_of_trl_1_15_are_compared_by_content(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    said = [[{"role": "assistant", "content": text}] for text in ("yes", "no", "yes", "yes")]
    write_dump(folder, 1, said, [{"role": "user", "content": "Is it?"}], f=[1.0, 0.0, 1.0, 1.0])
    (summary,) = drain(parquet(folder))
    assert patterns(summary) == [(0, 1, 0, 0)]


def test_half_written_dump_is_tried_again_and_counted_only_when_it_stays_so(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    path = write_dump(folder, 1, ["a", "b"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    source = parquet(folder)
    assert list(source.poll(1.0)) == []
    assert source.stats.skipped == {}
    path.write_bytes(whole)
    (summary,) = source.poll(2.0)
    assert summary == CompletionSummary("completions", 1, summary.groups, seen=2.0)
    path.write_bytes(whole[:-100])
    assert list(source.poll(3.0)) == []
    assert list(source.poll(4.0)) == []
    assert source.stats.skipped == {Skip.TRUNCATED: 1}
    assert list(source.finish()) == []
    assert source.stats.skipped == {Skip.TRUNCATED: 1}


def test_rows_without_end_in_a_small_file_are_not_read(tmp_path: Path) -> None:
    """Three million equal rows are a few kilobytes of Parquet, and took two gigabytes and two minutes."""
    path = write_dump(tmp_path / "completions", 1, ["a"] * 70_000)
    assert path.stat().st_size < 100_000
    source = parquet(path.parent)
    assert drain(source) == []
    assert source.stats.skipped == {Skip.TOO_LONG: 1}
    assert source.stats.first_bad.endswith("completions_00001.parquet: more than 65536 completions")


@pytest.mark.parametrize("bound", ["MAX_BATCH", "MAX_BYTES", "MAX_ROWS"])
def test_a_dump_above_a_bound_is_reported_once_and_not_tried_again(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither at later polls, also when other files arrive, nor after a restart; again once it was rewritten."""
    begun: list[str] = []
    plain = completion_folder.read_unchanged

    def counted(path: Path, *more: Any) -> Any:
        begun.append(path.name)
        return plain(path, *more)

    monkeypatch.setattr(completion_folder, "read_unchanged", counted)
    folder = tmp_path / "completions"
    path = write_dump(folder, 1, ["a" * 900, "b"])
    with monkeypatch.context() as small:
        small.setattr(parquet_module, bound, 1)
        source = parquet(folder)
        for _ in range(40):  # the folder is listed again meanwhile
            assert list(source.poll(1.0)) == []
    assert begun == ["completions_00001.parquet"]
    assert source.stats.skipped == {Skip.TOO_LONG: 1}
    assert source.stats.first_bad.startswith("too-long: completions_00001.parquet: ")
    assert [record.message for record in caplog.records] == ["a file is not read"]
    write_dump(folder, 2, ["c", "d"])
    assert [item.step for item in source.poll(2.0) if isinstance(item, CompletionSummary)] == [2]
    again = parquet(folder, source.cursor())
    assert drain(again) == []
    assert begun == ["completions_00001.parquet", "completions_00002.parquet"]
    write_dump(folder, 1, ["e", "f", "g"])
    os.utime(path, ns=(1 << 62, 1 << 62))
    later = parquet(folder, again.cursor())
    assert [item.step for item in drain(later)] == [1]


def test_offline_a_half_written_dump_is_counted_once(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    path = write_dump(folder, 1, ["a", "b"])
    path.write_bytes(path.read_bytes()[:-100])
    write_dump(folder, 2, ["c", "d"])
    source = parquet(folder)
    assert [summary.step for summary in drain(source)] == [2]
    assert source.stats.skipped == {Skip.TRUNCATED: 1}


def test_dump_overwritten_by_a_later_attempt_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    for step in (1, 2, 3):
        write_dump(folder, step, [f"{step}", "x"])
    source = parquet(folder)
    assert [item.step for item in source.poll(1.0) if isinstance(item, CompletionSummary)] == [1, 2, 3]
    assert list(source.poll(2.0)) == []
    write_dump(folder, 2, ["other", "text"])
    write_dump(folder, 4, ["4", "x"])
    again = [item for item in source.poll(3.0) if isinstance(item, CompletionSummary)]
    assert [(item.step, item.stream) for item in again] == [(2, Stream.TRAIN), (4, Stream.TRAIN)]


def test_newest_dump_that_comes_again_with_other_prompts_is_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    write_dump(folder, 1, ["a", "b"])
    source = parquet(folder)
    assert len(list(source.poll(1.0))) == 1
    write_dump(folder, 1, ["c", "d"], prompt="of the evaluation")
    (item,) = source.poll(2.0)
    assert isinstance(item, CompletionSummary)
    assert item.stream is Stream.EVAL


def test_files_that_are_no_dumps_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    write_dump(folder, 1, ["a", "b"])
    (folder / "completions_00002.parquet.tmp").write_bytes(b"half")
    (folder / "notes.parquet").write_bytes(b"PAR1")
    (folder / "completions_00003.parquet").mkdir()
    (folder / "completions_00004.parquet").symlink_to("/etc/passwd")
    os.mkfifo(folder / "completions_00005.parquet")
    (folder / "completions_00006.parquet").symlink_to("completions_00006.parquet")
    source = parquet(folder)
    assert [summary.step for summary in drain(source)] == [1]
    assert source.stats.skipped == {Skip.UNREADABLE: 2, Skip.OUTSIDE: 1}
    assert "completions_00004.parquet" in source.stats.problem


def test_missing_folder_gives_nothing_until_it_appears(tmp_path: Path) -> None:
    source = parquet(tmp_path / "completions")
    assert list(source.poll(1.0)) == []
    write_dump(tmp_path / "completions", 1, ["a", "b"])
    assert len(list(source.poll(2.0))) == 1


@pytest.mark.parametrize(
    ("taken", "expected"), [(0, [1, 2, 3, 4]), (1, [1, 2, 3, 1, 4]), (2, [1, 2, 3, 1, 4]), (3, [1, 2, 3, 1, 4])]
)
def test_parquet_restart_between_any_two_items_loses_and_repeats_nothing(
    tmp_path: Path, taken: int, expected: list[int]
) -> None:
    """While the reader is away, dump 1 is overwritten and dump 4 appears."""
    folder = tmp_path / "completions"
    for step in (1, 2, 3):
        stamp(write_dump(folder, step, [f"{step}", "x"]), step)
    first = parquet(folder)
    got = [item.step for _, item in zip(range(taken), poll_steps(first), strict=False)]
    cursor = first.cursor()
    stamp(write_dump(folder, 1, ["rewritten", "x"]), 10)
    stamp(write_dump(folder, 4, ["4", "x"]), 11)
    rest = [summary.step for summary in drain(parquet(folder, cursor))]
    assert [*got, *rest] == expected


def stamp(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def poll_steps(source: CompletionsParquetSource) -> Iterator[CompletionSummary]:
    for item in source.poll(None):
        assert isinstance(item, CompletionSummary)
        yield item


class Later:
    """A future that is done when the test says so."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments, self.ready = function, arguments, False

    def done(self) -> bool:
        return self.ready

    def result(self) -> Any:
        return self.function(*self.arguments)


def test_poll_does_not_wait_for_work_done_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    shutil.copytree(REAL / "trl-1.16.0-stride", folder)
    futures: list[Later] = []

    def submit(function: Callable[..., Any], *arguments: Any) -> Later:
        futures.append(Later(function, arguments))
        return futures[-1]

    source = parquet(folder, submit=submit)
    assert list(source.poll(1.0)) == []
    futures[1].ready = True
    assert list(source.poll(2.0)) == [], "the first is not done: order is kept"
    futures[0].ready = True
    assert [item.step for item in source.poll(3.0) if isinstance(item, CompletionSummary)] == [1, 2]


def test_death_of_the_worker_ends_no_watch(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    shutil.copytree(REAL / "trl-1.16.0-stride", folder)

    def die(*_: Any) -> Any:
        raise RuntimeError("terminated abruptly")

    source = parquet(folder, submit=lambda _, *arguments: Later(die, arguments))
    assert drain(source) == []
    assert source.stats.skipped == {Skip.UNREADABLE: 2}
    assert "terminated abruptly" in source.stats.first_bad


def test_open_instructs_rollouts_are_rows_of_token_numbers(tmp_path: Path) -> None:
    """One row per sample, appended step after step; equal token lists are equal texts, ids are no rewards."""

    def line(step: int, at: int, prompt: list[int], response: list[int], reward: float) -> str:
        row = {"step": step, "sample_idx": at, "prompt_idx": at // 2, "prompt_tokens": prompt}
        row |= {"response_tokens": response, "reward": reward, "advantage": 0.0, "finish_reason": "stop"}
        return json.dumps({**row, "dataset": "gsm8k", "ground_truth": "4", "logprobs": [-0.1, -0.2]}) + "\n"

    path = tmp_path / "exp_rollouts_000000.jsonl"
    rows = [([1, 2], [7, 8], 1.0), ([1, 2], [7, 8], 1.0), ([3], [9], 0.0), ([3], [9, 9], 1.0)]
    lines = [*(line(1, at, *row) for at, row in enumerate(rows)), line(2, 0, [4], [1], 1.0), line(2, 1, [4], [2], 1.0)]
    path.write_text("".join(lines))
    source = CompletionsJsonlSource(path.name, path, [tmp_path], lambda: 2)
    first, second = [item for item in [*source.poll(None), *source.finish()] if isinstance(item, CompletionSummary)]
    assert (first.step, second.step) == (1, 2)
    assert [group.pattern for group in first.groups] == [(0, 0), (0, 1)]
    assert first.groups[1].rewards == {"reward": (0.0, 1.0), "advantage": (0.0, 0.0)}
    (run,) = discover(tmp_path)
    assert ChannelContent.COMPLETIONS_JSONL in {channel.what for channel in run.channels}


def test_a_dump_that_is_too_large_is_named_once_and_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither at the next polls, nor at the end, nor after a restart; once it is rewritten it is."""
    read: list[str] = []

    def submit(function: Callable[..., Any], path: Path, *arguments: Any) -> DeferredWork:
        read.append(path.name)
        return DeferredWork(function, path, *arguments)

    monkeypatch.setattr(parquet_module, "MAX_BYTES", 100)
    folder = tmp_path / "completions"
    folder.mkdir()
    for step in (1, 2):
        rows = {"prompt": ["p"] * 4, "completion": ["c" * 90 * step] * 3 + ["d"], "reward": [0.0, 1.0, 0.0, 1.0]}
        pq.write_table(pa.table(rows), folder / f"completions_0000{step}.parquet", use_dictionary=["prompt"])
    source = parquet(folder, submit=submit)
    for _ in range(4):
        list(source.poll(1.0))
    list(source.finish())
    assert read == ["completions_00001.parquet", "completions_00002.parquet"]
    assert source.stats.skipped == {Skip.TOO_LONG: 2}
    warned = [getattr(record, "fields", {}) for record in caplog.records]
    assert [fields["file"] for fields in warned] == [str(folder / name) for name in read]
    assert all("more than 100 bytes uncompressed" in fields["reason"] for fields in warned)
    again = parquet(folder, source.cursor(), submit=submit)
    list(again.poll(None))
    assert len(read) == 2
    monkeypatch.setattr(parquet_module, "MAX_BYTES", 1_000_000)
    path = folder / "completions_00002.parquet"
    os.utime(path, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    (summary,) = again.poll(None)
    assert (summary.step, again.stats.first_bad) == (2, "")


def test_a_dump_for_which_no_memory_is_left_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("grpo_watch.sources.completions.parquet.read_dump", fails)
    folder = tmp_path / "completions"
    folder.mkdir()
    pq.write_table(pa.table({"prompt": ["p"], "completion": ["c"]}), folder / "completions_00001.parquet")
    source = parquet(folder)
    assert drain(source) == []
    assert source.stats.first_bad == "too-long: completions_00001.parquet: no memory is left for it"
