"""SwanLab's logs: recorded ones of 0.10.3 and 0.7.5, live, torn, restarted; and several runs in one folder."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import EventKind, Item, RunConfig, RunEvent, Stream
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from grpo_watch.sources.settings.documents import plain_yaml
from grpo_watch.sources.trackers import swanlab as reader
from grpo_watch.sources.trackers.swanlab import HEADERS, SwanlabSource
from tests.support.channel import Opens, grown, restarted, rows, whole
from tests.support.tracker_files import in_blocks, swanlab

RECORDED = Path(__file__).parent / "swanlab"
"""Five steps each, with KLs of 0, NaN and an infinity, and an evaluation at step 4; ``crashed`` ends with an error.

``exits`` and ``survived`` print the traceback of an error that they caught, behind step 5 and behind step 3.
"""
VERSIONS = ["0.10.3", "0.7.5"]
LOCAL = ("finished", "local")


def opens(path: Path) -> Opens:
    return lambda cursor: SwanlabSource("swanlab", path, [path.parent], lambda: 2, cursor=cursor)


def recorded(version: str, end: str = "finished") -> list[Item]:
    return whole(opens(RECORDED / f"{end}-{version}.swanlab"))


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_both_formats(version: str) -> None:
    """A KL of exactly 0 is a zero, not a number that is not there: protobuf stores it as an empty message."""
    found = rows(recorded(version))
    assert [(row.step, row.stream) for row in found] == [
        (1, None), (2, None), (3, None), (4, None), (4, Stream.EVAL), (5, None),
    ]  # fmt: skip
    train = [row.values for row in found if row.stream is None]
    assert [values["train/loss"] for values in train] == [0.25, 0.5, 0.75, 1.0, 1.25]
    kls = [values["train/kl"] for values in train]
    assert [str(kl) for kl in kls] == ["0.0", "1.0", "nan", "inf", "2.5"]
    assert found[4].values == {"eval/reward": 0.5, "train/epoch": 1.0}
    assert found[0].time == pytest.approx(1_795_695_770, abs=30)  # 2026-11-26 12:22:50 UTC


@pytest.mark.parametrize("version", VERSIONS)
def test_mode_local_writes_the_same_log_beside_its_dashboard(version: str, tmp_path: Path) -> None:
    """The dashboard's database has the logs' suffix."""
    shown = [[(row.step, row.stream, str(row.values)) for row in rows(recorded(version, end))] for end in LOCAL]
    assert shown[0] == shown[1]
    folder = tmp_path / "run-20261127_043957-9o60jnyp"
    (folder / "logs" / "1").mkdir(parents=True)
    (folder / "logs" / "1" / "1000.log").write_text('{"index": 1, "data": 0.25, "create_time": "2026-11-27"}\n')
    shutil.copy(RECORDED / f"local-{version}.swanlab", folder / "run-9o60jnyp.swanlab")
    with closing(sqlite3.connect(tmp_path / "runs.swanlab")) as dashboard:
        dashboard.execute("CREATE TABLE experiment (id INTEGER)")
        dashboard.commit()
    (run,) = discover(tmp_path)
    read = {channel.name for channel in run.channels if channel.what is not ChannelContent.RUN_CONFIG}
    assert read == {"run-20261127_043957-9o60jnyp/run-9o60jnyp.swanlab"}


@pytest.mark.parametrize("version", VERSIONS)
def test_settings_beside_the_log_without_secrets(version: str) -> None:
    items = recorded(version)
    config = next(item for item in items if isinstance(item, RunConfig))
    assert {name: config.settings[name].value for name in ("num_generations", "beta")} == {
        "num_generations": 2,
        "beta": 0.04,
    }
    assert "hf_aVeryLongName" not in repr(items)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end(version: str) -> None:
    assert recorded(version)[-1] == RunEvent("swanlab", EventKind.FINISHED, 5)


@pytest.mark.parametrize(
    ("version", "error"), [("0.10.3", "RuntimeError: CUDA out of memory"), ("0.7.5", "CUDA out of memory")]
)
def test_an_error_that_ended_the_run(version: str, error: str) -> None:
    text = f"SwanLab stored that the run crashed: {error}"
    assert recorded(version, "crashed")[-1] == RunEvent("swanlab", EventKind.CRASH_SUMMARY, 5, text)


NO_MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (in generation)"
"""What a job printed that caught the error: it then ended itself with exit code 1, or went on."""


def events(items: list[Item]) -> list[tuple[EventKind, int | None, str]]:
    return [(item.kind, item.step, item.text) for item in items if isinstance(item, RunEvent)]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_printed_behind_the_last_row_is_the_end(version: str) -> None:
    """The client stores such a run as finished: it knows no exit code."""
    said = f"SwanLab stored that the run finished, but an error was printed behind its last row: {NO_MEMORY}"
    assert events(recorded(version, "exits")) == [
        (EventKind.TRACEBACK, 5, NO_MEMORY),
        (EventKind.CRASH_SUMMARY, 5, said),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_went_on_after_a_printed_error_finished(version: str) -> None:
    """The lines of a batch stand before its numbers in 0.10, whichever came first."""
    found = recorded(version, "survived")
    assert events(found) == [(EventKind.TRACEBACK, 3, NO_MEMORY), (EventKind.FINISHED, 5, "")]
    assert [row.step for row in rows(found)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_torn_inside_a_printed_traceback(version: str, tmp_path: Path) -> None:
    whole_log = (RECORDED / f"exits-{version}.swanlab").read_bytes()
    path = tmp_path / "run-a.swanlab"
    path.write_bytes(whole_log[: whole_log.rindex(b"RuntimeError: CUDA")])
    end = (EventKind.TRACEBACK, 5, "the log ends inside a traceback, at train.py:9 in generate")
    assert events(whole(opens(path))) == [end]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_restart_inside_a_printed_traceback_loses_nothing(version: str, tmp_path: Path) -> None:
    whole_log = (RECORDED / f"exits-{version}.swanlab").read_bytes()
    path = tmp_path / "run-a.swanlab"
    path.write_bytes(whole_log[: whole_log.rindex(b"RuntimeError: CUDA")])
    before = opens(path)(None)
    items = [*before.poll(1.0)]
    assert events(items) == []
    path.write_bytes(whole_log)
    after = opens(path)(before.cursor())
    items = [*after.poll(1.0), *after.finish()]
    assert [kind for kind, _, _ in events(items)] == [EventKind.TRACEBACK, EventKind.CRASH_SUMMARY]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_console_of_the_jobs_own_is_read_instead(version: str, tmp_path: Path) -> None:
    run = tmp_path / "swanlog" / "run-20261127_093931-kceqk0ls"
    run.mkdir(parents=True)
    shutil.copy(RECORDED / f"survived-{version}.swanlab", run / "run-kceqk0ls.swanlab")

    def read() -> set[tuple[str, str]]:
        (found,) = discover(tmp_path)
        pipeline, noted = Pipeline("run", load_rules([]), catalogue()), set[tuple[str, str]]()
        opened = open_run(found, pipeline)
        for one in opened.sources:
            noted |= {(one.what, kind.value) for kind, _, _ in events([*one.source.poll(None), *one.source.finish()])}
        opened.close()
        return noted

    alone = {("swanlab", "traceback"), ("swanlab", "finished")}
    assert read() == alone
    lines = [f"{{'loss': 0.5, 'reward': 0.5, 'step': {step}}}" for step in range(1, 6)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert read() == alone - {("swanlab", "traceback")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["finished", "crashed", "exits", "survived"])
def test_a_restart_after_any_item_changes_nothing(version: str, end: str) -> None:
    """Compared as text: a NaN is among the values."""
    path = RECORDED / f"{end}-{version}.swanlab"
    assert repr(restarted(opens(path))) == repr(whole(opens(path)))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sizes", [[3], [7, 90, 1_000, 2_000], [1_500, 3_000]])
def test_a_log_that_grows_gives_the_same(version: str, sizes: list[int], tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path, dirs_exist_ok=True)
    path = tmp_path / f"finished-{version}.swanlab"
    assert repr(grown(opens(path), path, sizes)) == repr(recorded(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_torn_tail_is_waited_for_and_named_at_the_end(version: str, tmp_path: Path) -> None:
    """The client does not flush: a killed job leaves a part of a record."""
    path = tmp_path / "run-a.swanlab"
    path.write_bytes((RECORDED / f"finished-{version}.swanlab").read_bytes()[:-70])
    source = opens(path)(None)
    read = [row.step for row in rows([*source.poll(1.0)])]
    assert read[:3] == [1, 2, 3]
    assert not source.stats.skipped
    list(source.finish())
    assert "not whole" in source.stats.first_bad or "no record" in source.stats.first_bad


def test_a_log_of_many_blocks(tmp_path: Path) -> None:
    logged = [(step, {f"metric_{key}": step + key / 8 for key in range(20)}) for step in range(1, 120)]
    for old in (False, True):
        path = swanlab(tmp_path / str(old), logged, old=old)
        assert path.stat().st_size > 2 * 32_768
        found = rows(whole(opens(path)))
        assert [(row.step, row.values) for row in found] == [
            (step, {f"train/{key}": value for key, value in values.items()}) for step, values in logged
        ]


def test_infinities_of_the_old_format(tmp_path: Path) -> None:
    path = swanlab(tmp_path, [(1, {"kl": math.inf}), (2, {"kl": -math.inf})], old=True)
    assert [row.values["train/kl"] for row in rows(whole(opens(path)))] == [math.inf, -math.inf]


def test_what_the_client_measures_of_the_machine_is_no_metric(tmp_path: Path) -> None:
    assert not any(key.startswith("__swanlab__") for row in rows(recorded("0.7.5")) for key in row.values)


def test_a_run_below_the_folder_is_found(tmp_path: Path) -> None:
    swanlab(tmp_path, [(step, {"loss": 1.0, "reward": 0.5}) for step in range(1, 5)])
    (run,) = discover(tmp_path)
    assert [channel.what for channel in run.channels if channel.name.endswith(".swanlab")] == [ChannelContent.SWANLAB]
    assert run.root == tmp_path


def second(folder: Path, first: int) -> None:
    """Another run in the folder, whose rows begin at another second."""
    one = folder / "swanlog" / "run-20261126_121109-59yhmqmm"
    one.rename(folder / "swanlog" / "run-20261126_111109-aaaaaaaa")
    swanlab(folder, [(step, {"loss": 1.0, "reward": 0.5}) for step in range(first, first + 5)])


def test_runs_that_follow_each_other_are_attempts_of_one(tmp_path: Path) -> None:
    swanlab(tmp_path, [(step, {"loss": 1.0, "reward": 0.5}) for step in range(1, 5)])
    second(tmp_path, 100)
    (run,) = discover(tmp_path)
    assert sorted(channel.segment for channel in run.channels if channel.what is ChannelContent.SWANLAB) == [0, 1]


def test_runs_of_the_same_time_are_two(tmp_path: Path) -> None:
    swanlab(tmp_path, [(step, {"loss": 1.0, "reward": 0.5}) for step in range(1, 5)])
    second(tmp_path, 2)
    assert len(discover(tmp_path)) == 2


WRITTEN = b'{"model_type": "Runtime", "data": {"config_filename": "config.yaml"}}\n'


def test_settings_are_read_once_per_poll_and_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a second or more if the file is made for it; what is written meanwhile is read at the next poll."""
    path, settings = tmp_path / "backup.swanlab", tmp_path / "files" / "config.yaml"
    settings.parent.mkdir()
    parsed: list[str] = []

    def parse(text: str) -> object:
        parsed.append(text)
        if len(parsed) == 2:
            settings.write_text("beta: {value: 0.125}\n", encoding="utf-8")
        return plain_yaml(text)

    monkeypatch.setattr(reader, "plain_yaml", parse)
    source = opens(path)(None)

    def polled(records: int) -> list[object]:
        path.write_bytes(in_blocks([WRITTEN] * records, HEADERS[0]))
        return [item.settings["beta"].value for item in source.poll(1.0) if isinstance(item, RunConfig)]

    settings.write_text("beta: {value: 0.5}\n", encoding="utf-8")
    assert (polled(3), len(parsed)) == ([0.5], 1)
    assert (polled(5), len(parsed)) == ([], 1)
    settings.write_text("beta: {value: 0.25}\n", encoding="utf-8")
    assert (polled(7), len(parsed)) == ([0.25], 2)
    assert (polled(7), len(parsed)) == ([0.125], 3)
    assert (polled(7), len(parsed)) == ([], 3)
