"""``.wandb`` files that the real client writes during the test: rows, settings, completions, the end, restarts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from grpo_watch.engine.records import CompletionSummary, EventKind, Item, RunConfig, RunEvent, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.files import reading
from grpo_watch.sources.trackers.wandb_offline import WandbOfflineSource
from tests.support.channel import Opens, grown, restarted, rows, whole
from tests.support.process import until
from tests.support.wandb_offline import Job, job

COLUMNS = ["step", "prompt", "completion", "accuracy", "advantage"]
CONFIG = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "num_generations": 2, "beta": 0.04}
HIDDEN = "hf_aVeryLongName"


def batch(step: int, *texts: str) -> list[object]:
    """A completions table as TRL logs it: one prompt, two generations."""
    return [COLUMNS, [[str(step), "2+2?", text, float(index), 0.5 - index] for index, text in enumerate(texts)]]


def opens(path: Path) -> Opens:
    return lambda cursor: WandbOfflineSource("wandb", path, [path.parents[2]], lambda: 2, cursor=cursor)


def logs_steps(running: Job) -> None:
    """Three steps as TRL logs them, with timings between and an evaluation after the second."""
    for step in (1, 2, 3):
        running.log(**{"profiling__Time taken: Trainer.compute_loss": 0.5})
        running.log(train__loss=0.25, train__kl=0.5 * step, train__reward=None, train__global_step=step)
        running.log(table=batch(step, "4", "5" * step))
        if step == 2:
            running.log(eval__reward=0.75, train__epoch=0.5, train__global_step=step)
    running.log(table=batch(3, "4", "555"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a job that ended well."""
    folder = tmp_path_factory.mktemp("finished")
    with job(folder, **CONFIG, hub_token=HIDDEN) as running:
        path = running.path
        logs_steps(running)
        running.finish()
    return path


@pytest.fixture
def items(finished: Path) -> list[Item]:
    return whole(opens(finished))


@pytest.mark.slow
def test_rows_by_step_without_the_timings_between(items: list[Item]) -> None:
    train = {"train/loss": 0.25, "train/reward": None}
    assert [(row.step, row.stream, row.values) for row in rows(items)] == [
        (1, None, {**train, "train/kl": 0.5}),
        (2, None, {**train, "train/kl": 1.0}),
        (2, Stream.EVAL, {"eval/reward": 0.75, "train/epoch": 0.5}),
        (3, None, {**train, "train/kl": 1.5}),
    ]


def test_rows_have_their_keys_in_one_order(tmp_path: Path) -> None:
    """The client shuffles the keys of each row; a new order of keys costs a new plan of how to read them."""
    with job(tmp_path) as running:
        for step in range(1, 9):
            running.log(train__global_step=step, **{f"train__m{key}": step for key in range(8)})
        running.finish()
        read = rows(list(opens(running.path)(None).finish()))
    assert {tuple(row.values) for row in read} == {tuple(f"train/m{key}" for key in range(8))}


def test_settings_without_secrets(items: list[Item]) -> None:
    (config,) = [item for item in items if isinstance(item, RunConfig)]
    assert {name: config.settings[name].value for name in CONFIG} == CONFIG
    assert HIDDEN not in repr(items)


def test_completions_once_per_batch(items: list[Item]) -> None:
    """The table that TRL logs again at the end of training repeats the one before."""
    tables = [item for item in items if isinstance(item, CompletionSummary)]
    assert [(table.step, table.stream, table.complete) for table in tables] == [
        (1, Stream.TRAIN, True),
        (2, Stream.TRAIN, True),
        (3, Stream.TRAIN, True),
    ]
    assert [table.groups[0].lengths for table in tables] == [(1, 1), (1, 2), (1, 3)]
    assert tables[0].groups[0].rewards == {"accuracy": (0.0, 1.0), "advantage": (0.5, -0.5)}


def test_the_end(items: list[Item]) -> None:
    assert items[-1] == RunEvent("wandb", EventKind.FINISHED, 3)


def test_a_restart_after_any_item_changes_nothing(finished: Path, items: list[Item]) -> None:
    assert restarted(opens(finished)) == items


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[7], [3, 90, 2_000], [2_500, 6_000, 9_000, 9_001]])
def test_a_file_that_grows_gives_the_same(finished: Path, items: list[Item], sizes: list[int], tmp_path: Path) -> None:
    copy = tmp_path / "wandb" / finished.parent.name / finished.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(finished.read_bytes())
    (copy.parent / "files").symlink_to(finished.parent / "files")
    both = [tmp_path, finished.parents[2]]
    assert grown(lambda c: WandbOfflineSource("wandb", copy, both, lambda: 2, cursor=c), copy, sizes) == items


def opens_alone(path: Path) -> WandbOfflineSource:
    return WandbOfflineSource("wandb", path, [path.parent], lambda: 2)


def test_tables_that_never_come_are_counted(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / finished.name
    copy.write_bytes(finished.read_bytes())
    source = opens_alone(copy)
    assert len(rows([*source.poll(None), *source.finish()])) == 4
    assert source.stats.skipped == {Skip.UNREADABLE: 4}


@pytest.mark.slow
def test_a_job_is_followed_while_it_runs(tmp_path: Path) -> None:
    """The client holds the newest rows back; what it has written is read at once, and nothing twice."""
    with job(tmp_path, **CONFIG) as running:
        source = opens(running.path)(None)
        got: list[Item] = []

        def followed() -> bool:
            got.extend(source.poll(40.0))
            return len(rows(got)) >= 20  # of 40 rows of 3.5 KB the newest 32 KiB may lack

        padding = {f"train__padding_{number}": float(number) for number in range(60)}
        for step in range(1, 41):
            running.log(train__kl=0.25 * step, train__global_step=step, **padding)
            got += source.poll(float(step))
        until(followed)
        live = [row.step for row in rows(got)]
        assert live == list(range(1, len(live) + 1))
        running.finish(1)
        got += [*source.poll(99.0), *source.finish()]
    assert [row.step for row in rows(got)] == list(range(1, 41))
    assert [row.values["train/kl"] for row in rows(got)] == [0.25 * step for step in range(1, 41)]
    assert got[-1] == RunEvent("wandb", EventKind.CRASH_SUMMARY, 40, "wandb stored the exit code 1", seen=99.0)


@pytest.mark.slow
def test_a_run_without_a_step_of_its_own_counts_by_wandb_s(tmp_path: Path) -> None:
    """Numbers that JSON has not come through; ``_step`` is the step where the job logs none."""
    with job(tmp_path, step="") as running:
        for value in (0.5, math.nan, -math.inf):
            running.log(critic__score=value)
        running.finish()
        (first, second, third) = rows(whole(opens(running.path)))
    assert [row.step for row in (first, second, third)] == [0, 1, 2]
    assert first.values == {"critic/score": 0.5}
    assert math.isnan(second.values["critic/score"] or 0.0)
    assert third.values == {"critic/score": -math.inf}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run-abc.wandb"
    path.write_text(json.dumps({"loss": 0.5}))
    return path


def test_a_file_that_is_no_log_of_wandb_says_so(log: Path) -> None:
    source = opens_alone(log)
    assert [*source.poll(None), *source.finish()] == []
    assert source.stats.problem == f"{log}: not such a log (its first bytes are others)"


@pytest.mark.slow
def test_a_turn_reads_no_more_than_its_budget(
    finished: Path, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BUDGET", 1_000)
    source, got, turns = opens(finished)(None), list[Item](), 0
    while not turns or source.unread:
        got += source.poll(1.0)
        turns += 1
    assert turns > 3
    got += source.finish()
    assert [(row.step, row.values) for row in rows(got)] == [(row.step, row.values) for row in rows(items)]
