"""Event files of real jobs and of a real writer that still writes: rows, settings, the end, damage, restarts."""

from __future__ import annotations

import gzip
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.proto.types_pb2 import DT_DOUBLE, DT_FLOAT, DT_STRING
from tensorboardX.record_writer import RecordWriter

from grpo_watch.cli.main import run_cli
from grpo_watch.engine.records import Cursor, EventKind, Item, RawRow, RunConfig, RunEvent, Stream
from grpo_watch.sources.base import Skip
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.files import reading
from grpo_watch.sources.trackers import tfevents
from grpo_watch.sources.trackers.tfevents import TfeventsSource
from tests.support.bundles import unpack
from tests.support.channel import Opens, grown, restarted, rows, whole

REAL = Path(__file__).with_name("tfevents")
TRL, SWIFT = "trl-1.16.0-03h-healthy-eval", "ms-swift-4.6.0-07b-indivisible-but-gas-ok"


def real(name: str, folder: Path) -> Path:
    path = folder / "events.out.tfevents.1795249805.vm.9321.0"
    path.write_bytes(gzip.decompress((REAL / f"{name}.tfevents.gz").read_bytes()))
    return path


def opens(path: Path) -> Opens:
    return lambda cursor: TfeventsSource("events", path, [path.parent], cursor=cursor)


def written(folder: Path, *events: Event) -> Path:
    """A file with these events, framed by a real writer."""
    path = folder / "events.out.tfevents.1.host.2.0"
    writer = RecordWriter(str(path))
    for event in events:
        writer.write(event.SerializeToString())
    writer.close()
    return path


def scalar(step: int, tag: str, value: float) -> Event:
    return Event(wall_time=100.0 + step, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def configs(items: list[Item]) -> list[RunConfig]:
    return [item for item in items if isinstance(item, RunConfig)]


def test_a_real_run_has_the_rows_that_its_console_shows(tmp_path: Path) -> None:
    """TRL 1.16 prints four significant digits of what it logs to TensorBoard as 32-bit floats."""
    items = whole(opens(real(TRL, tmp_path)))
    log = unpack(TRL, tmp_path) / "train.log"
    printed = rows(whole(lambda cursor: ConsoleSource("train.log", log, [log.parent], cursor=cursor)))
    logged = rows(items)
    assert [(row.step, row.stream) for row in logged] == [(row.step, row.stream) for row in printed]
    assert sum(row.stream is Stream.EVAL for row in logged) == 5
    for row, shown in zip(logged, printed, strict=True):
        own = {key.replace("eval/", "eval_").removeprefix("train/"): value for key, value in row.values.items()}
        assert own.keys() == shown.values.keys()
        assert {key: float(f"{value:.4g}") for key, value in own.items()} == pytest.approx(shown.values, rel=2e-3)
    assert (items[-1].kind, items[-1].step) == (EventKind.FINISHED, 100)
    assert logged[0].time == pytest.approx(1_795_249_806, abs=10)


WITHIN = ("training_args", "deepspeed")
"""Arguments that are searched; others give one setting, which is named like them."""


def test_the_logged_arguments_are_settings_and_nothing_else_is_kept(tmp_path: Path) -> None:
    """As the job was started: --per_device_train_batch_size 4 --gradient_accumulation_steps 3 --num_generations 6."""
    arguments, model = configs(whole(opens(real(SWIFT, tmp_path))))
    reported = {name: setting.value for name, setting in arguments.settings.items()}
    assert {name: reported[name] for name in ("max_steps", "per_device_train_batch_size", "num_generations")} == {
        "max_steps": 10,
        "per_device_train_batch_size": 4,
        "num_generations": 6,
    }
    for setting, found in arguments.settings.items():
        assert found.origin in {
            "tensorboard: args",
            *(f"tensorboard: args: {key}" for key in (setting.removeprefix("raw:"), *WITHIN)),
        }
    assert {name: setting.value for name, setting in model.settings.items()} == {"dtype": "float32"}
    assert "hub_token" not in repr(arguments)


@pytest.mark.parametrize("name", [TRL, SWIFT])
def test_a_restart_after_any_item_changes_nothing(name: str, tmp_path: Path) -> None:
    path = real(name, tmp_path)
    assert restarted(opens(path)) == whole(opens(path))


@given(sizes=st.lists(st.integers(0, 20_000), max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_file_that_grows_gives_the_same(sizes: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("grown")
    path = real(SWIFT, folder)
    expected = whole(opens(path))
    assert grown(opens(path), path, sizes) == expected


@given(
    step=st.integers(-(2**63), 2**63 - 1),
    time=st.floats(0.001, 1e12),
    tag=st.text(min_size=1, max_size=200),
    value=st.floats(width=32, allow_nan=False),
)
def test_one_scalar_is_read_as_it_was_logged(step: int, time: float, tag: str, value: float) -> None:
    values = [Summary.Value(tag=tag, simple_value=value)]
    payload = Event(wall_time=time, step=step, summary=Summary(value=values)).SerializeToString()
    logged = tfevents.SummaryEvent(step if step >= 0 else None, time, {tag: value}, {})
    assert tfevents.decode_event(payload) == logged


def test_a_real_writer_is_followed_while_it_writes(tmp_path: Path) -> None:
    """The step that is being written waits until the next one shows. NaN is a value."""
    writer = EventsWriter(str(tmp_path / "events"))
    (path,) = tmp_path.iterdir()
    source = TfeventsSource("events", path, [tmp_path])
    for step in (1, 2):
        writer.write_event(scalar(step, "actor/kl_loss", 0.5 * step))
        writer.write_event(scalar(step, "critic/score/mean", math.nan))
    writer.flush()
    (row,) = rows(list(source.poll(3.0)))
    assert (row.step, row.values["actor/kl_loss"], row.time, row.seen) == (1, 0.5, 101.0, 3.0)
    assert math.isnan(row.values["critic/score/mean"] or 0.0)
    assert list(source.poll(4.0)) == []
    writer.write_event(scalar(3, "actor/kl_loss", 1.5))
    writer.flush()
    assert [row.step for row in rows(list(source.poll(5.0)))] == [2]
    writer.close()
    assert [row.step for row in rows(list(source.finish()))] == [3]


def tensor(dtype: int, **content: object) -> Event:
    value = Summary.Value(tag="t", tensor=TensorProto(dtype=dtype, **content))
    return Event(step=1, summary=Summary(value=[value]))


@pytest.mark.parametrize(
    ("event", "value"),
    [
        (tensor(DT_FLOAT, float_val=[0.25]), 0.25),
        (tensor(DT_FLOAT, tensor_content=struct.pack("<f", -2.0)), -2.0),  # as Keras writes it
        (tensor(DT_DOUBLE, double_val=[1e-9]), 1e-9),
        (tensor(DT_FLOAT, float_val=[1.0, 2.0]), None),  # a histogram, or worse
        (tensor(DT_STRING, string_val=[b"text"]), None),
    ],
)
def test_scalars_in_the_form_of_tensors(event: Event, value: float | None) -> None:
    assert tfevents.decode_event(event.SerializeToString()).scalars == ({} if value is None else {"t": value})


def test_what_a_metric_was_left_out_of_is_absent_not_zero(tmp_path: Path) -> None:
    """transformers passes over None: the reward is missing in its row, the KL is there."""
    path = written(tmp_path, scalar(1, "train/reward", 1.0), scalar(1, "train/kl", 0.0), scalar(2, "train/kl", 0.0))
    assert [row.values for row in rows(whole(opens(path)))] == [
        {"train/reward": 1.0, "train/kl": 0.0},
        {"train/kl": 0.0},
    ]


def test_metrics_left_over_at_the_end_are_part_of_the_last_row(tmp_path: Path) -> None:
    """TRL flushes what it gathered since the last log together with the run time; the end comes after them."""
    path = written(
        tmp_path,
        scalar(4, "train/loss", 0.5),
        scalar(4, "train/epoch", 0.75),
        scalar(5, "train/train_runtime", 9.0),
        scalar(5, "train/train_loss", 0.25),
        scalar(5, "train/kl", 0.125),
        scalar(5, "train/epoch", 1.0),
    )
    items = whole(opens(path))
    assert [(row.step, row.values) for row in rows(items)] == [
        (4, {"train/loss": 0.5, "train/epoch": 0.75}),
        (5, {"train/kl": 0.125}),
    ]
    assert [(item.kind, item.step) for item in items if isinstance(item, RunEvent)] == [(EventKind.FINISHED, 5)]
    assert restarted(opens(path)) == items


def test_damage_costs_one_record_and_is_reported_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, *(scalar(step, "train/kl", 0.5) for step in (1, 2, 3)))
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[size + 20] ^= 1
    path.write_bytes(data)
    source = TfeventsSource("events", path, [tmp_path])
    assert [row.step for row in rows([*source.poll(None), *source.finish()])] == [1, 3]
    assert source.stats.skipped == {Skip.UNREADABLE: 1}
    assert source.stats.first_bad == f"unreadable: byte {size}: a record with a wrong checksum"


@pytest.mark.parametrize("ahead", [12, 20])
def test_records_behind_damage_at_which_a_poll_ended_are_read(ahead: int, tmp_path: Path) -> None:
    """A length may be damaged while nothing stands behind it yet, in the file's first record, too."""
    path = written(tmp_path, *(scalar(step, "train/kl", 0.5) for step in range(1, 7)))
    whole_file = path.read_bytes()
    size = len(whole_file) // 6
    for bad, expected in ((3, [1, 2, 3, 5, 6]), (0, [2, 3, 4, 5, 6])):
        data = bytearray(whole_file)
        data[bad * size + 3] = 0x55
        path.write_bytes(data[: bad * size + ahead])
        source = TfeventsSource("events", path, [tmp_path])
        items = list(source.poll(None))
        assert "no readable record follows" in source.stats.problem
        with path.open("ab") as file:
            file.write(data[bad * size + ahead :])
        items += [*source.poll(None), *source.finish()]
        assert [row.step for row in rows(items)] == expected
        assert (source.stats.problem, source.stats.skipped) == ("", {Skip.UNREADABLE: 1})


def test_a_file_that_goes_on_with_other_bytes_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, scalar(1, "train/kl", 0.5))
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"something else entirely")
    source = TfeventsSource("events", path, [tmp_path])
    assert list(source.poll(None)) == []
    assert (
        source.stats.problem == f"{path}: byte {size}: no readable record follows; the rest of the file can't be used"
    )
    assert len(rows(list(source.finish()))) == 1


def test_records_that_are_no_events_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host.2.0"
    writer = RecordWriter(str(path))
    writer.write(b"\x0a\x05abc")
    writer.write(scalar(-1, "train/kl", 0.5).SerializeToString())
    writer.close()
    source = TfeventsSource("events", path, [tmp_path])
    assert [*source.poll(None), *source.finish()] == []
    assert source.stats.skipped == {Skip.BAD_VALUE: 1, Skip.NO_STEP: 1}


def test_another_file_under_the_name_starts_over(tmp_path: Path) -> None:
    path = written(tmp_path, scalar(8, "train/kl", 0.5), scalar(9, "train/kl", 0.5))
    source = TfeventsSource("events", path, [tmp_path])
    assert [row.step for row in rows(list(source.poll(None)))] == [8]
    path.unlink()
    written(tmp_path, scalar(1, "train/loss", 0.5), scalar(2, "train/loss", 0.5))
    assert [row.step for row in rows([*source.poll(None), *source.finish()])] == [1, 2]


def test_a_cursor_of_a_copy_goes_on_in_the_original(tmp_path: Path) -> None:
    """A run that was moved to another disk has other inodes and the same bytes."""
    path = real(SWIFT, tmp_path)
    source = TfeventsSource("events", path, [tmp_path])
    first = next(item for item in source.poll(None) if isinstance(item, RawRow))
    cursor: Cursor = source.cursor()
    moved = tmp_path / "moved"
    moved.mkdir()
    copy = real(SWIFT, moved)
    later = rows([*(reader := TfeventsSource("events", copy, [moved], cursor=cursor)).poll(None), *reader.finish()])
    assert first.step == 1
    assert [row.step for row in later] == list(range(2, 11))


def test_a_link_out_of_the_run_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = written(outside, scalar(1, "train/kl", 0.5))
    run = tmp_path / "run"
    run.mkdir()
    link = run / target.name
    link.symlink_to(target)
    source = TfeventsSource("events", link, [run])
    assert [*source.poll(None), *source.finish()] == []
    assert "allow_roots" in source.stats.problem


@pytest.mark.parametrize(("begun", "reported"), [(1060, True), (2000, False)])
def test_two_jobs_in_one_folder_are_reported(
    begun: int, *, reported: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row every ten seconds, twenty each; the second begins a minute after the first, or after its end."""
    for process, start in ((1, 1000), (2, begun)):
        writer = RecordWriter(str(tmp_path / f"events.out.tfevents.{start}.vm.{process}.0"))
        for step in range(1, 21):
            event = scalar(step, "train/reward", 0.5)
            event.wall_time = start + 10.0 * step
            writer.write(event.SerializeToString())
        writer.close()
    assert run_cli(["sources", str(tmp_path), "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert any("were written at the same time: two jobs" in each for each in run["problems"]) is reported


def test_a_turn_reads_no_more_than_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of scalars is read over several turns, each row once, and all at once by a check."""
    path = written(tmp_path, *(scalar(step, f"reward/{n}", 0.5) for step in range(1, 9) for n in range(20)))
    monkeypatch.setattr(reading, "BUDGET", 2_000)
    source, got, turns = opens(path)(None), list[Item](), 0
    while not turns or source.unread:
        got += source.poll(1.0)
        turns += 1
    assert turns > 3
    got += source.finish()
    assert [(row.step, row.values) for row in rows(got)] == [(row.step, row.values) for row in rows(whole(opens(path)))]
    assert not opens(path)(None).unread
