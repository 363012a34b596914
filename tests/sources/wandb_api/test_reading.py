"""Runs that grow, end, go on, are rewound or deleted, read through wandb's own client and across restarts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from grpo_watch.engine.records import (
    ChannelKind,
    CompletionSummary,
    Cursor,
    EventKind,
    Item,
    RawRow,
    RunConfig,
    RunEvent,
    Stream,
)
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import RemotePlace
from tests.support.bundles import unpack
from tests.support.wandb_runs import Reading, calls, metrics, table, wandb_rows
from tests.support.wandb_server import KEY, Fault, ServedRun, WandbServer

PROFILING = {"profiling/Time taken: X": 0.1}


def steps(items: list[Item], stream: Stream | None = None) -> list[int | None]:
    return [item.step for item in items if isinstance(item, RawRow) and item.stream is stream]


def events(items: list[Item]) -> list[EventKind]:
    return [item.kind for item in items if isinstance(item, RunEvent)]


def test_a_run_that_grows_gives_complete_steps_and_holds_the_newest_back(
    server: WandbServer, client: ClientProcess
) -> None:
    run = server.add("ada/grpo", ServedRun("r1", config={"beta": 0.04}))
    run.rows = calls(PROFILING | {"train/global_step": 0}, metrics(1), PROFILING | {"train/global_step": 1}, metrics(2))
    reading = Reading(client)
    source = reading.source()
    first = reading.read(source)
    assert [type(item) for item in first] == [RunConfig, RawRow]
    row = first[1]
    assert isinstance(row, RawRow)
    assert (row.step, row.kind, row.time, row.seen) == (1, ChannelKind.WANDB, 1.795e9 + 1, 1.8e9 + 60)
    assert row.values == {"train/loss": 0.5, "train/reward": 0.01, "train/kl": 0.01}
    assert reading.read(source) == [], "nothing new: the newest step is not shown to be complete"
    run.rows += calls({"train/global_step": 2, "train/late": 3.0}, metrics(3), begin=4)
    (second,) = reading.read(source)
    assert isinstance(second, RawRow)
    assert (second.step, second.values["train/late"]) == (2, 3.0)


def test_a_run_that_ends_gives_its_last_step_and_says_how(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    source = reading.source()
    assert steps(reading.read(source)) == [1]
    run.rows += calls(metrics(3), begin=2)
    run.state = "finished"
    ending = reading.read(source)
    assert (steps(ending), events(ending)) == ([2, 3], [EventKind.FINISHED])
    assert isinstance(ending[-1], RunEvent), "after the last row"
    assert reading.read(source) == []


@pytest.mark.parametrize(
    ("state", "kind"),
    [("failed", EventKind.CRASH_SUMMARY), ("killed", EventKind.KILLED), ("crashed", EventKind.KILLED)],
)
def test_a_run_that_died(server: WandbServer, client: ClientProcess, state: str, kind: EventKind) -> None:
    server.add("ada/grpo", ServedRun("r1", state=state, rows=calls(metrics(1))))
    reading = Reading(client)
    items = reading.read(reading.source())
    assert (steps(items), events(items)) == ([1], [kind])


def test_a_run_that_goes_on_under_its_id_begins_an_attempt(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", state="failed", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    source = reading.source()
    reading.read(source)
    run.state = "running"
    run.rows += calls(metrics(2, **{"train/kl": 0.5}), metrics(3), begin=2)
    again = reading.read(source)
    assert (events(again), steps(again)) == ([EventKind.STARTED], [2])


def test_a_lost_heartbeat_that_comes_back_is_no_restart(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", state="crashed", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    source = reading.source()
    reading.read(source)
    run.state = "running"
    run.rows += calls(metrics(3), metrics(4), begin=2)
    again = reading.read(source)
    assert (events(again), steps(again)) == ([], [3])


def test_a_rewound_history_is_read_again_from_where_it_ends(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", rows=calls(*(metrics(step) for step in range(1, 11)))))
    reading = Reading(client)
    source = reading.source()
    assert steps(reading.read(source)) == list(range(1, 10))
    run.rows = [*run.rows[:4], *calls(metrics(5, **{"train/kl": 9.0}), begin=4)]
    reading.turn(60)
    assert events(items := list(source.poll(None))) == [EventKind.STARTED]
    assert steps(items) == [10], "the step that was held had been logged"
    run.rows += calls(metrics(6), begin=5)
    run.rows += calls(metrics(7), begin=6)
    again = reading.read(source)
    assert steps(again) == [6], "step 5 was logged again before the end was seen"


def test_a_deleted_run_is_reported_once_and_others_go_on(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1), metrics(2))))
    other = server.add("ada/grpo", ServedRun("r2", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    source, second = reading.source(), reading.source(place=RemotePlace("ada", "grpo", "r2"))
    reading.turn(60)
    assert [steps(list(one.poll(None))) for one in (source, second)] == [[1], [1]]
    del server.projects["ada/grpo"][0]
    other.rows += calls(metrics(3), begin=2)
    gone = reading.read(source)
    assert events(gone) == [EventKind.SOURCE_PROBLEM]
    assert "deleted" in source.stats.problem
    assert steps(list(second.poll(None))) == [2]
    assert [reading.read(source, 600) for _ in range(3)] == [[], [], []]


def test_an_expired_key_is_logged_once_and_recovers(
    server: WandbServer, client: ClientProcess, caplog: pytest.LogCaptureFixture
) -> None:
    for run in ("r1", "r2"):
        server.add("ada/grpo", ServedRun(run, rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    sources = [reading.source(place=RemotePlace("ada", "grpo", run)) for run in ("r1", "r2")]
    reading.turn(60)
    assert [steps(list(source.poll(None))) for source in sources] == [[1], [1]]
    server.standing = Fault(401, json.dumps({"errors": [{"message": f"no such key {KEY}"}]}).encode())
    with caplog.at_level(logging.WARNING):
        reading.turn(60)
        assert [events(list(source.poll(None))) for source in sources] == [[EventKind.SOURCE_PROBLEM]] * 2
        reading.turn(600)
        assert len(caplog.records) == 1
        assert "expired" in str(caplog.records[0].__dict__["fields"])
        assert all(KEY not in source.stats.problem for source in sources)
        assert KEY not in str([record.__dict__ for record in caplog.records])
        server.standing = None
        reading.turn(600)
    assert [events(list(source.poll(None))) for source in sources] == [[EventKind.SOURCE_RECOVERED]] * 2
    assert [source.stats.problem for source in sources] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("status", [502, 429])
def test_a_server_that_fails_for_an_hour_loses_and_repeats_nothing(
    status: int, server: WandbServer, client: ClientProcess
) -> None:
    """Rows are logged meanwhile; it is asked ever less often, and its first good answer brings them."""
    run = server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1), metrics(2))))
    reading = Reading(client)
    source = reading.source()
    assert steps(reading.read(source)) == [1]
    server.standing = Fault(status)
    found: list[Item] = []
    asked = 0
    for number in range(20):
        run.rows += calls(metrics(number + 3), begin=number + 2)
        asked += reading.turn(180)
        found += source.poll(1.8e9 + reading.now)
    assert (steps(found), events(found)) == ([], [EventKind.SOURCE_PROBLEM])
    assert asked <= 20
    server.standing = None
    again = reading.read(source, 600)
    assert events(again) == [EventKind.SOURCE_RECOVERED]
    assert steps(again) == list(range(2, 22))


def test_tables_come_before_the_row_of_their_step_and_once(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", config={"num_generations": 2}))
    batch = {"prompt": ["p", "p"], "completion": ["a", "a"], "fn": [1.0, 1.0], "advantage": [0.0, 0.0]}
    first = {"step": ["1"] * 2, **batch}
    second = {"step": ["2"] * 2, **batch, "completion": ["a", "b"]}
    again = {**second, "step": ["2"] * 2}
    ones = [metrics(1), {"train/global_step": 1, "completions": table(run, 1, first)}]
    twos = [metrics(2), {"train/global_step": 2, "completions": table(run, 3, second)}]
    run.rows = calls(*ones, *twos, {"train/global_step": 2, "completions": table(run, 4, again)}, metrics(3))
    reading = Reading(client)
    source = reading.source()
    items = [item for item in reading.read(source) if not isinstance(item, RunConfig)]
    shown = [(type(item).__name__, getattr(item, "step", None)) for item in items]
    assert shown == [("CompletionSummary", 1), ("RawRow", 1), ("CompletionSummary", 2), ("RawRow", 2)]
    assert isinstance(items[0], CompletionSummary)
    assert [group.pattern for group in items[0].groups] == [(0, 0)]
    assert sum(source.stats.skipped.values()) == 1, "the same table logged again"


def test_a_missing_table_loses_no_row(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1"))
    ref = table(run, 1, {"step": ["1"], "prompt": ["p"], "completion": ["a"]})
    run.files.clear()
    run.rows = calls(metrics(1), {"train/global_step": 1, "completions": ref}, metrics(2))
    reading = Reading(client)
    source = reading.source()
    assert steps(reading.read(source)) == [1]
    assert "_step 1" in source.stats.first_bad


def test_tables_with_one_row_per_prompt_show_no_groups(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", config={"wandb_log_unique_prompts": True, "num_generations": 2}))
    ref = table(run, 1, {"step": ["1"] * 2, "prompt": ["p", "q"], "completion": ["a", "a"]})
    run.rows = calls(metrics(1), {"train/global_step": 1, "completions": ref}, metrics(2))
    reading = Reading(client)
    source = reading.source()
    assert not any(isinstance(item, CompletionSummary) for item in reading.read(source))
    assert "log_unique_prompts" in source.stats.first_bad
    assert "GET" not in server.asked


def test_verl_counts_by_step_and_its_first_validation_has_no_other_mark(
    server: WandbServer, client: ClientProcess
) -> None:
    rows = [{"_step": 0, "val-core/acc/mean@1": 0.25}]
    rows += [{"_step": step, "training/global_step": step, "actor/kl_loss": 0.1 * step} for step in (1, 2, 3)]
    server.add("ada/verl", ServedRun("v1", rows=rows))
    reading = Reading(client)
    items = reading.read(reading.source(place=RemotePlace("ada", "verl", "v1")))
    assert (steps(items, Stream.EVAL), steps(items)) == ([0], [1, 2])


def test_verl_s_validation_before_a_resume_counts_by_step_as_well(server: WandbServer, client: ClientProcess) -> None:
    rows = [{"_step": step, "training/global_step": step, "actor/kl_loss": 0.1 * step} for step in (1, 2, 3)]
    run = server.add("ada/verl", ServedRun("v1", state="failed", rows=rows))
    reading = Reading(client)
    source = reading.source(place=RemotePlace("ada", "verl", "v1"))
    assert steps(reading.read(source)) == [1, 2, 3]
    run.state = "running"
    run.rows += [{"_step": 4, "val-core/acc/mean@1": 0.25}]
    run.rows += [{"_step": step, "training/global_step": step, "actor/kl_loss": 0.1} for step in (5, 6)]
    items = reading.read(source)
    assert (steps(items, Stream.EVAL), steps(items)) == ([4], [5])


@pytest.mark.slow
def test_a_run_with_calls_between_keeps_those_without_a_step_at_the_newest(
    server: WandbServer, client: ClientProcess
) -> None:
    """transformers counts fewer steps than wandb counts calls."""
    rows = calls({"gpu/heat": 1.0}, metrics(1), {"gpu/heat": 2.0}, {"gpu/heat": 3.0}, metrics(2), metrics(3))[1:]
    server.add("ada/grpo", ServedRun("r1", rows=[row | {"_step": row["_step"] + 5} for row in rows]))
    reading = Reading(client)
    first, second = [item for item in reading.read(reading.source()) if isinstance(item, RawRow)]
    assert (first.step, first.values["gpu/heat"], second.step) == (1, 3.0, 2)


def test_the_step_is_read_from_the_column_that_the_user_names(server: WandbServer, client: ClientProcess) -> None:
    rows = [{"my/update": step, "train/global_step": 64 * step, "train/loss": 0.5} for step in (1, 2, 3)]
    server.add("ada/grpo", ServedRun("r1", rows=calls(*rows)))
    reading = Reading(client)
    source = reading.source()
    source.step_column = "my/update"
    assert steps(reading.read(source)) == [1, 2]


def read_all(reading: Reading, cursor: Cursor | None = None) -> list[Item]:
    source = reading.source(cursor)
    items = [*reading.read(source), *source.finish()]
    source.close()
    return items


def timeless(items: list[Item]) -> list[str]:
    """The items without the watcher's clock, which differs from one reading to the next."""
    return [repr(item._replace(seen=None) if isinstance(item, RawRow) else replace(item, seen=None)) for item in items]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl-1.16.0-11-dup-stride3", "trl-1.16.0-03h-healthy-eval"])
def test_a_restart_anywhere_loses_and_repeats_nothing(
    name: str, server: WandbServer, client: ClientProcess, tmp_path: Path
) -> None:
    run = server.add("ada/grpo", ServedRun("r1", config={"num_generations": 6, "beta": 0.04}))
    run.rows = wandb_rows(unpack(name, tmp_path), run)[:60]
    reading = Reading(client)
    whole = timeless(read_all(reading)[1:])
    assert len(whole) > 15
    for cut in range(1, len(whole) - 1, 7):
        source = reading.source()
        reading.turn(60)
        items = source.poll(None)
        config, *before = [next(items) for _ in range(cut + 1)]
        cursor = source.cursor()
        source.close()
        assert isinstance(config, RunConfig)
        assert timeless([*before, *read_all(reading, cursor)]) == whole, cut


def test_the_state_that_is_kept_holds_neither_key_nor_texts(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1", config={"wandb_key": KEY, "num_generations": 2}))
    columns = {"step": ["1"] * 2, "prompt": ["p", "p"], "completion": [KEY, KEY]}
    run.rows = calls(metrics(1), {"train/global_step": 1, "completions": table(run, 1, columns)}, metrics(2))
    reading = Reading(client)
    source = reading.source()
    items = reading.read(source)
    assert KEY not in repr(source.cursor())
    assert KEY not in repr([item for item in items if not isinstance(item, CompletionSummary)])


def test_two_runs_share_one_budget(server: WandbServer, client: ClientProcess) -> None:
    places = [RemotePlace("ada", "grpo", run) for run in ("r1", "r2")]
    for place in places:
        server.add("ada/grpo", ServedRun(place.run, rows=calls(metrics(1), metrics(2))))
    reading = Reading(client, per_minute=12)
    sources = [reading.source(place=place) for place in places]
    reading.turn(0)
    server.asked.clear()
    moments = []
    for _ in range(240):
        before = len(server.asked)
        reading.turn(1.0)
        if len(server.asked) > before:
            moments.append(reading.now)
    assert len(server.asked) <= 12 * 4 + 2, "four minutes"
    assert min(later - earlier for earlier, later in pairwise(moments)) >= 4.0
    assert [steps(list(source.poll(None))) for source in sources] == [[1], [1]]
