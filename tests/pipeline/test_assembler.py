"""The assembler: which channel gives the rows, what the others add, and when another one takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import (
    Activity,
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    CompletionSummary,
    EventKind,
    GroupSummary,
    Item,
    MetricRow,
    Progress,
    RawRow,
    Record,
    RunConfig,
    RunEvent,
    Setting,
    Stream,
    Tick,
)
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.secondary_channels import BUFFERED_ROWS
from tests.support.records import a_batch, a_checkpoint, a_group

JSONL, TFEVENTS, CONSOLE, STATE = (
    ChannelKind.JSONL,
    ChannelKind.TFEVENTS,
    ChannelKind.CONSOLE,
    ChannelKind.TRAINER_STATE,
)
quick = settings(derandomize=True, deadline=None, max_examples=100)


def jsonl(step: int, channel: str = "logging.jsonl", **changes: object) -> RawRow:
    """A row of the JSON lines: reward and loss, its own life's time."""
    known = {"values": {"reward": step / 100, "loss": 0.1}, "seen": float(step)}
    return RawRow(channel, JSONL, step, **{**known, **changes})  # type: ignore[arg-type]


def console(step: int, channel: str = "train.log", **changes: object) -> RawRow:
    """A row of the console: the reward rounded, and an entropy that the JSON lines lack."""
    known = {"values": {"reward": round(step / 100, 1), "entropy": 2.0}, "resolution": 5e-5, "seen": float(step)}
    return RawRow(channel, CONSOLE, step, **{**known, **changes})  # type: ignore[arg-type]


def opened(*channels: tuple[str, ChannelKind]) -> list[Item]:
    """The announcements of these channels."""
    return [ChannelOpened(name, kind) for name, kind in channels]


BOTH = opened(("logging.jsonl", JSONL), ("train.log", CONSOLE))


def fed(items: Iterable[Item], assembler: Assembler | None = None) -> list[Record]:
    """All records that these items make."""
    target = assembler or Assembler("run")
    return [record for item in items for record in target.feed(item)]


def rows(records: Iterable[Record]) -> list[tuple[int, int, dict[str, float | None]]]:
    """Attempt, step and values of the primary rows of training."""
    found = [each for each in records if isinstance(each, MetricRow) and each.stream is Stream.TRAIN]
    found = [each for each in found if not each.supplement]
    return [(each.attempt, each.step, dict(each.values)) for each in found]


def steps(records: Iterable[Record]) -> list[tuple[int, int]]:
    """Attempt and step of the primary rows."""
    return [(attempt, step) for attempt, step, _ in rows(records)]


def added(records: Iterable[Record]) -> list[tuple[int, dict[str, float | None]]]:
    """Step and values of the rows that only add."""
    return [(r.step, dict(r.values)) for r in records if isinstance(r, MetricRow) and r.supplement]


def test_a_raw_row_becomes_a_row_in_canonical_names() -> None:
    raw = jsonl(3, values={"reward": 0.5, "kl": None, "my_metric": 7.0}, time=1700.0, seen=5.0, resolution=1e-8)
    (made,) = (each for each in fed([*BOTH, raw]) if isinstance(each, MetricRow))
    assert (made.run, made.stream, made.attempt, made.step) == ("run", Stream.TRAIN, 1, 3)
    assert (made.time, made.seen, made.resolution, made.supplement) == (1700.0, 5.0, 1e-8, False)
    assert made.values == {"reward_mean": 0.5, "kl_reference": None}
    assert made.raw["my_metric"] == 7.0


def test_the_best_opened_channel_gives_the_rows_and_the_other_only_what_it_lacks() -> None:
    got = fed([*BOTH, jsonl(1), console(1), jsonl(2), console(2)])
    assert rows(got) == [(1, step, {"reward_mean": step / 100, "loss": 0.1}) for step in (1, 2)]
    assert added(got) == [(1, {"entropy": 2.0}), (2, {"entropy": 2.0})]


def test_what_is_added_keeps_the_resolution_of_its_channel() -> None:
    (extra,) = (r for r in fed([*BOTH, jsonl(1), console(1)]) if isinstance(r, MetricRow) and r.supplement)
    assert (extra.resolution, extra.seen, extra.attempt) == (5e-5, 1.0, 1)


def differing(step: int, reward: float, channel: str = "train.log") -> RawRow:
    return console(step, channel, values={"reward": reward, "entropy": 2.0, "epoch": 7.0})


def test_values_that_contradict_the_primarys_are_counted_and_never_used() -> None:
    """Step 3: 0.03 and 0.5. Step 4: 0.04 and 0.0400499 lie within the console's rounding (5e-5)."""
    assembler = Assembler("run")
    items = [*BOTH, *(jsonl(step) for step in range(1, 6)), differing(3, 0.5), differing(4, 0.0400499)]
    made = fed(items, assembler)
    assert assembler.agreement.conflicts == {"train.log": 1}
    assert assembler.agreement.summary() == ""  # one row is no other job
    assert {values.get("reward_mean") for _, values in added(made)} == {None}


def test_a_channel_that_contradicts_at_most_steps_is_named() -> None:
    assembler = Assembler("run")
    fed([*BOTH, *(jsonl(step) for step in range(1, 8)), *(differing(step, 0.5) for step in range(1, 8))], assembler)
    assert assembler.agreement.summary() == (
        "train.log contradicts the run's rows at most of their steps, none is filled from it: "
        "step 1: reward_mean is 0.01 in logging.jsonl and 0.5 in train.log"
    )


@pytest.mark.parametrize(
    ("own", "other", "count"),
    [(0.1, 0.1001, 0), (0.1, 0.1003, 1), (float("nan"), float("nan"), 0), (float("nan"), 0.1, 1), (None, 0.1, 0)],
)
def test_what_is_a_contradiction(own: float | None, other: float, count: int) -> None:
    """Four significant digits are rounding; a null says nothing; NaN beside a number does."""
    assembler = Assembler("run")
    fed([*BOTH, jsonl(1, values={"loss": own}), console(1, values={"loss": other}, resolution=None)], assembler)
    assert sum(assembler.agreement.conflicts.values()) == count


def test_contradictions_are_remembered_within_bounds() -> None:
    """Two jobs' files in one folder: every value differs, and each is counted."""
    assembler = Assembler("run")
    items = [item for step in range(1, 3001) for item in (jsonl(step), differing(step, 99.0))]
    fed([*BOTH, *items], assembler)
    assert sum(assembler.agreement.conflicts.values()) == 3000
    assert len(assembler.agreement._given) == 500


def test_the_other_channel_waits_for_the_primary() -> None:
    """Console rows that are read first add nothing until the primary has reached their step."""
    assembler = Assembler("run")
    assert fed([*BOTH, console(1), console(2), console(3)], assembler) == []
    got = fed([jsonl(1)], assembler)
    assert (steps(got), added(got)) == ([(1, 1)], [(1, {"entropy": 2.0})])
    got = fed([jsonl(2), jsonl(3)], assembler)
    assert (steps(got), added(got)) == ([(1, 2), (1, 3)], [(2, {"entropy": 2.0}), (3, {"entropy": 2.0})])


def test_any_interleaving_of_two_channels_gives_the_same_rows() -> None:
    """Also where the primary begins to carry a metric half-way: what is added depends on steps, not on arrival."""

    def primary(step: int) -> RawRow:
        more = {"entropy": 1.5} if step > 5 else {}
        return jsonl(step, values={"reward": 0.5, **more})

    @quick
    @given(st.permutations([0] * 9 + [1] * 9))
    def check(order: list[int]) -> None:
        sides = (iter([primary(step) for step in range(1, 10)]), iter([console(step) for step in range(1, 10)]))
        # a console that is ahead fills the gap before a primary row that comes later: here there is none to fill
        got = fed([*BOTH, primary(0), *(next(sides[side]) for side in order)])
        assert steps(got) == [(1, step) for step in range(10)]
        assert sorted(step for step, _ in added(got)) == [1, 2, 3, 4, 5]

    check()


def test_steps_that_the_primary_lost_are_filled_in_order() -> None:
    """A killed job's buffered log lacks 3 and 4; the console has them before the primary goes on."""
    got = fed([*BOTH, jsonl(1), jsonl(2), console(3), console(4), jsonl(5)])
    assert rows(got)[2:4] == [
        (1, 3, {"reward_mean": 0.0, "entropy": 2.0}),
        (1, 4, {"reward_mean": 0.0, "entropy": 2.0}),
    ]
    assert steps(got) == [(1, step) for step in (1, 2, 3, 4, 5)]


def test_a_misprinted_step_lets_another_channel_add_no_row_twice() -> None:
    """The console has reached step 4 when the JSON lines print 2623: that fills 2 to 4; the next to be read is 5."""
    waiting = [console(step) for step in (2, 3, 4)]
    got = fed([*BOTH, jsonl(1), *waiting, jsonl(2623), *(jsonl(step) for step in (3, 4, 5, 6))])
    assert steps(got) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 2623), (1, 5), (1, 6)]


def test_a_lost_step_is_filled_once_by_the_better_of_two_channels() -> None:
    state = [RawRow("state", STATE, step, {"reward": 9.0}) for step in (2, 3)]
    channels = [*BOTH, ChannelOpened("state", STATE)]
    got = fed([*channels, jsonl(1), *state, console(2), console(3), jsonl(4)])
    assert rows(got)[1:3] == [(1, step, {"reward_mean": 0.0, "entropy": 2.0}) for step in (2, 3)]
    assert steps(got) == [(1, step) for step in (1, 2, 3, 4)]


def test_an_unannounced_better_channel_takes_over_where_it_goes_on() -> None:
    """The JSON lines appear when the console is at step 3: what they repeat is no new attempt, 4 is theirs."""
    assembler = Assembler("run")
    fed([ChannelOpened("train.log", CONSOLE), console(1), console(2), console(3)], assembler)
    got = fed([ChannelOpened("logging.jsonl", JSONL), jsonl(1), jsonl(2), jsonl(3), jsonl(4), console(4)], assembler)
    assert rows(got) == [(1, 4, {"reward_mean": 0.04, "loss": 0.1})]
    assert added(got) == [(1, {"loss": 0.1}), (2, {"loss": 0.1}), (3, {"loss": 0.1}), (4, {"entropy": 2.0})]
    assert assembler.primary is JSONL


def test_an_evaluation_row_of_a_better_channel_takes_nothing_over() -> None:
    assembler = Assembler("run")
    evaluation = jsonl(2, values={"eval_reward": 0.5}, stream=Stream.EVAL)
    got = fed([ChannelOpened("train.log", CONSOLE), console(1), evaluation, console(2)], assembler)
    assert (steps(got), assembler.primary) == ([(1, 1), (1, 2)], CONSOLE)


def test_no_election_while_the_primary_gives_rows_or_nobody_else_does() -> None:
    assembler = Assembler("run")
    assert assembler.election(1e9) is None
    fed([*BOTH, jsonl(1, seen=100.0), jsonl(2, seen=101.0)], assembler)
    assert assembler.election(1e9) is None
    fed([console(2, seen=101.0)], assembler)
    assert assembler.election(1e9) is None
    fed([console(3, seen=102.0)], assembler)
    assert assembler.election(160.9) is None
    assert assembler.election(161.0) == ChannelElected(Stream.TRAIN, "train.log", "jsonl silent")


def test_silence_is_measured_in_the_primarys_own_steps() -> None:
    """Ten median steps of 30 seconds are 300 seconds."""
    assembler = Assembler("run")
    fed([*BOTH, *(jsonl(step, seen=step * 30.0) for step in range(1, 6)), console(6, seen=180.0)], assembler)
    assert assembler.election(449.0) is None
    assert assembler.election(450.0) is not None


def test_a_primary_that_never_spoke_is_given_up() -> None:
    """An event file that was opened and stays empty must not hide the console."""
    assembler = Assembler("run")
    fed(
        [*opened(("events", TFEVENTS), ("train.log", CONSOLE)), console(1, seen=10.0), console(2, seen=20.0)], assembler
    )
    assert assembler.election(69.0) is None
    election = assembler.election(70.0)
    assert election == ChannelElected(Stream.TRAIN, "train.log", "tfevents silent")
    assert steps(fed([election, console(3, seen=71.0)], assembler)) == [(1, 1), (1, 2), (1, 3)]


def test_the_elected_channel_gives_what_it_had_waiting_and_goes_on() -> None:
    election = ChannelElected(Stream.TRAIN, "train.log", "jsonl silent")
    got = fed([*BOTH, jsonl(1), jsonl(2), console(3), console(4), election, console(5)])
    assert steps(got) == [(1, step) for step in (1, 2, 3, 4, 5)]


def test_the_old_primary_comes_back_without_a_new_attempt() -> None:
    """Its buffer held 3 and 4: they repeat what the console gave; 5 is its own again."""
    election = ChannelElected(Stream.TRAIN, "train.log", "jsonl silent")
    assembler = Assembler("run")
    items = [*BOTH, jsonl(1), jsonl(2), console(3), console(4), election, jsonl(3), jsonl(4), jsonl(5), console(5)]
    assert steps(fed(items, assembler)) == [(1, step) for step in (1, 2, 3, 4, 5)]
    assert (assembler.primary, assembler.ledger.attempt) == (JSONL, 1)


def test_a_folder_of_the_second_attempt_can_hand_over_to_the_one_console() -> None:
    """The console is one file for all attempts: its segment 0 is not an older one than the folder's 1."""
    second = ChannelOpened("v1/logging.jsonl", JSONL, segment=1)
    election = ChannelElected(Stream.TRAIN, "train.log", "jsonl silent")
    items = [
        *BOTH,
        second,
        jsonl(1),
        jsonl(2),
        jsonl(2, "v1/logging.jsonl", segment=1),
        election,
        console(3),
        console(4),
    ]
    assert steps(fed(items)) == [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4)]


def test_an_election_of_an_unknown_channel_changes_nothing() -> None:
    assembler = Assembler("run")
    got = fed([*BOTH, jsonl(1), ChannelElected(Stream.TRAIN, "gone", "x"), jsonl(2), console(2)], assembler)
    assert (steps(got), assembler.primary) == ([(1, 1), (1, 2)], JSONL)


def test_a_stored_election_replays_the_same() -> None:
    """Live, the election falls between two items; the stored items with it make the same records."""
    live, stored, records = Assembler("run"), [], []
    feed = [*BOTH, *(jsonl(step, seen=float(step)) for step in (1, 2, 3))]
    feed += [console(step, seen=float(step * 30)) for step in range(1, 8)]
    for item in feed:
        election = live.election(getattr(item, "seen", None) or 0.0)
        for each in [*filter(None, [election]), item]:
            stored.append(each)
            records += live.feed(each)
    assert [each for each in stored if isinstance(each, ChannelElected)]
    assert steps(records) == [(1, step) for step in range(1, 8)]
    assert fed(stored) == records


def test_two_logs_of_one_kind_give_each_row_once() -> None:
    """Each rank has its own console; the first that gives a row is the one that counts."""
    ranks = opened(("rank0.log", CONSOLE), ("rank1.log", CONSOLE))
    printed = [console(step, f"rank{rank}.log") for step in (1, 2, 3) for rank in (0, 1)]
    assert steps(fed([*ranks, *printed])) == [(1, 1), (1, 2), (1, 3)]


def test_rows_in_the_one_stream_of_a_job_and_its_bar_in_the_other() -> None:
    """Slurm's job.err holds the bars and no row: it must not hide job.out."""
    streams = opened(("job.err", CONSOLE), ("job.out", CONSOLE))
    printed = [Progress("job.err", 1, 9), console(1, "job.out"), console(2, "job.out")]
    assert steps(fed([*streams, *printed])) == [(1, 1), (1, 2)]


def test_a_new_attempt_in_the_primary_is_in_every_record_from_there() -> None:
    got = fed([*BOTH, jsonl(5), jsonl(6), jsonl(5, seen=50.0, values={"reward": 0.9}), console(5), jsonl(6, values={})])
    assert steps(got)[:2] == [(1, 5), (1, 6)]
    again = [jsonl(step, values={"reward": 0.9}) for step in (3, 4)]
    got = fed([*BOTH, jsonl(5), jsonl(6), *again, a_checkpoint(4, {"w": "a"}), a_checkpoint(5, {"w": "b"})])
    assert steps(got) == [(1, 5), (1, 6), (2, 3), (2, 4)]
    (extra,) = (r for r in got if isinstance(r, MetricRow) and r.supplement)
    assert (extra.attempt, extra.values) == (2, {"parameters_changed_ratio": 1.0})


@pytest.mark.parametrize(("channel", "attempts"), [("logging.jsonl", [1, 2]), ("train.log", [1, 1])])
def test_a_bar_that_starts_over_counts_only_in_the_primary_channel(channel: str, attempts: list[int]) -> None:
    got = fed([*BOTH, jsonl(1), RunEvent(channel, EventKind.STARTED), jsonl(2)])
    assert [attempt for attempt, _ in steps(got)] == attempts


def test_two_jobs_in_one_log_are_reported_once() -> None:
    mixed = [each for step in range(1, 7) for each in (jsonl(100 + step), jsonl(step))]
    said = [each for each in fed([*BOTH, *mixed]) if isinstance(each, RunEvent)]
    assert [(each.kind, each.channel) for each in said] == [(EventKind.SOURCE_PROBLEM, "logging.jsonl")]
    assert said[0].text.startswith("two jobs write to this log")


def events(step: int, segment: int, begun: float) -> RawRow:
    """A row of an event file, one every ten seconds since it was begun."""
    return RawRow(f"events.{segment}", TFEVENTS, step, {"reward": 0.5}, segment=segment, time=begun + 10.0 * step)


@pytest.mark.parametrize("order", ["one after the other", "as written"])
def test_event_files_written_at_the_same_time_are_reported_once(order: str) -> None:
    """Two jobs in one TENSORBOARD_DIR, the second begun a minute later; each writes twenty rows."""
    written = [events(step, segment, 60.0 * segment) for segment in (0, 1) for step in range(1, 21)]
    if order == "as written":
        written.sort(key=lambda row: row.time or 0.0)
    reported = [record for record in fed(written) if isinstance(record, RunEvent)]
    assert [event.kind for event in reported] == [EventKind.SOURCE_PROBLEM]
    assert reported[0].text.startswith(
        "events.0 and events.1 were written at the same time: two jobs, not two attempts"
    )


@pytest.mark.parametrize(("begun", "restart_step"), [(200.0, 15), (175.0, 1), (10_000.0, 1)])
def test_a_resumed_job_follows_the_one_before(begun: float, restart_step: int) -> None:
    """Also where the dying one flushed two rows (of 190 and 200 s) after the next had written its first."""
    written = [events(step, 0, 0.0) for step in range(1, 21)]
    written += [events(step, 1, begun) for step in range(restart_step, restart_step + 20)]
    assert not any(isinstance(record, RunEvent) for record in fed(written))


def test_evaluation_rows_are_no_attempt_and_carry_their_stream() -> None:
    """ms-swift and TRL log an evaluation under the step of the last training row."""
    evaluation = jsonl(2, values={"eval_reward": 0.5, "eval_loss": 0.1}, stream=Stream.EVAL)
    got = [each for each in fed([*BOTH, jsonl(1), jsonl(2), evaluation, jsonl(3)]) if isinstance(each, MetricRow)]
    assert [(each.stream, each.step, each.attempt) for each in got] == [
        (Stream.TRAIN, 1, 1),
        (Stream.TRAIN, 2, 1),
        (Stream.EVAL, 2, 1),
        (Stream.TRAIN, 3, 1),
    ]


def test_evaluation_metrics_do_not_hide_what_the_primarys_training_rows_lack() -> None:
    evaluation = jsonl(1, values={"eval_entropy": 0.5, "eval_reward": 0.5}, stream=Stream.EVAL)
    got = fed([*BOTH, jsonl(1), evaluation, jsonl(2), console(2)])
    assert (added(got), evaluations(got)) == ([(2, {"entropy": 2.0})], [(1, {"eval_score[reward]": 0.5})])


def evaluations(records: Iterable[Record]) -> list[tuple[int, dict[str, float | None]]]:
    """Step and scores of the evaluations."""
    found = [each for each in records if isinstance(each, MetricRow) and each.stream is Stream.EVAL]
    return [(each.step, dict(each.values)) for each in found]


def scored(make: Callable[..., RawRow], step: int) -> RawRow:
    """An evaluation's row, as a Trainer logs it."""
    return make(step, values={"eval_reward": step / 10}, stream=Stream.EVAL)


def test_evaluations_that_another_channel_alone_has_are_kept() -> None:
    """The JSON lines of a callback that leaves evaluations out, beside the console."""
    items = [jsonl(1), console(1), jsonl(2), console(2), scored(console, 2), jsonl(3), console(3), scored(console, 4)]
    got = fed([*BOTH, *items, jsonl(4), jsonl(5)])
    assert evaluations(got) == [(2, {"eval_score[reward]": 0.2}), (4, {"eval_score[reward]": 0.4})]
    assert steps(got) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]


def test_an_evaluation_that_two_channels_have_counts_once() -> None:
    """Whichever is first; a state file that comes at the end repeats all of them."""
    items = [jsonl(2), scored(console, 2), scored(jsonl, 2), jsonl(4), scored(jsonl, 4), scored(console, 4)]
    state = [RawRow("state", STATE, step, {"eval_reward": step / 10}, Stream.EVAL) for step in (2, 4)]
    got = fed([*BOTH, ChannelOpened("state", STATE), *items, jsonl(6), *state])
    assert evaluations(got) == [(2, {"eval_score[reward]": 0.2}), (4, {"eval_score[reward]": 0.4})]


def test_a_run_that_starts_over_evaluates_the_same_steps_again() -> None:
    trained = [jsonl(step, segment=segment) for segment in (0, 1) for step in (1, 2, 3)]
    trained[2:2] = [scored(jsonl, 2)]
    trained[6:6] = [scored(jsonl, 2)._replace(segment=1)]
    assert evaluations(fed([*BOTH, *trained])) == [(2, {"eval_score[reward]": 0.2})] * 2


def test_evaluations_of_another_channel_count_in_a_resumed_attempt_too() -> None:
    """Resumed from step 3; the state file repeats what was evaluated before."""
    first = [item for step in range(1, 7) for item in (jsonl(step), scored(console, step))]
    resumed = [item for step in range(4, 7) for item in (jsonl(step, segment=1), scored(console, step))]
    state = [RawRow("state", STATE, step, {"eval_reward": step / 10}, Stream.EVAL) for step in range(1, 7)]
    places = [ChannelOpened("logging.jsonl", JSONL, segment=segment) for segment in (0, 1)]
    got = fed([*BOTH, *places, ChannelOpened("state", STATE), *first, *resumed, *state])
    found = [each for each in got if isinstance(each, MetricRow) and each.stream is Stream.EVAL]
    assert [(each.attempt, each.step) for each in found] == [
        *((1, step) for step in range(1, 7)),
        (2, 4),
        (2, 5),
        (2, 6),
    ]


def test_no_evaluation_of_a_channel_makes_it_primary() -> None:
    """One beyond the last row of training waits for that row until the run has ended."""
    assembler = Assembler("run")
    fed([*BOTH, jsonl(1, seen=1.0), scored(console, 2)], assembler)
    assert assembler.election(1e9) is None
    election = assembler.election(1e9, ended=True)
    assert election == ChannelElected(Stream.EVAL, "train.log", "the run ended")
    assert evaluations(fed([election], assembler)) == [(2, {"eval_score[reward]": 0.2})]
    assert (assembler.primary, assembler.election(1e9, ended=True)) == (JSONL, None)


def test_what_is_no_evaluation_waits_on() -> None:
    """A run that was taken for ended goes on."""
    election = ChannelElected(Stream.EVAL, "train.log", "the run ended")
    got = fed([*BOTH, jsonl(1), console(2), scored(console, 2), election, jsonl(2), jsonl(3)])
    assert (evaluations(got), added(got)) == ([(2, {"eval_score[reward]": 0.2})], [(2, {"entropy": 2.0})])


def test_the_total_is_reported_when_it_changes() -> None:
    got = fed([*BOTH, jsonl(1, max_steps=80), jsonl(2, max_steps=80), jsonl(3, max_steps=90)])
    assert [(each.step, each.max_steps) for each in got if isinstance(each, Progress)] == [(1, 80), (3, 90)]


def test_other_items_pass_as_they_are() -> None:
    items: list[Item] = [
        RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "args.json")}),
        RunEvent("train.log", EventKind.TRACEBACK, 3, "ValueError: x"),
        Progress("train.log", 3, 80),
        Activity("train.log", 5.0),
        Tick(6.0),
    ]
    assert fed([*BOTH, *items]) == items


def test_completions_and_checkpoints_add_their_gauge() -> None:
    batch = a_batch(2, (0, 1, 2, 3), (0, 0, 1, 1))
    first, second = a_checkpoint(20, {"a": "1", "b": "2"}), a_checkpoint(40, {"a": "1", "b": "3"})
    assert fed([batch])[0] is batch
    assert added(fed([batch])) == [(2, {"completion_duplicate_ratio": 0.25})]
    assert added(fed([first, second])) == [(40, {"parameters_changed_ratio": 0.5})]


def test_the_dump_of_a_validation_is_an_evaluation() -> None:
    """verl's: one row per answer with its score, and with what else the reward function returned."""
    groups = [a_group((0, 1), rewards={"score": (1.0, 0.0), "acc": (1.0, None), "turns": (2.0, 2.0)}) for _ in range(2)]
    dump = replace(a_batch(2, (0, 0)), groups=tuple(groups), stream=Stream.EVAL)
    got = fed([*BOTH, dump])
    assert (got[0], added(got)) == (dump, [])
    assert evaluations(got) == [(2, {"eval_score[acc]": 1.0, "eval_score[score]": 0.5})]
    assert evaluations(fed([*BOTH, a_batch(2, (0, 0), stream=Stream.EVAL)])) == []


@pytest.mark.parametrize(
    ("digest", "share"),
    [
        (a_checkpoint(40, {"a": "1", "b": "2"}), 0.0),
        (a_checkpoint(40, {"a": "9", "b": "9", "new": "9"}), 1.0),
        (a_checkpoint(40, {"other": "1"}), None),
        (a_checkpoint(20, {"a": "9", "b": "9"}), None),
        (a_checkpoint(10, {"a": "9", "b": "9"}), None),
        (a_checkpoint(40, {"a": "9", "b": "9"}, complete=False), None),
        (a_checkpoint(40, {"a": "9", "b": "9"}, problems=("truncated",)), None),
    ],
)
def test_the_share_of_changed_tensors(digest: object, share: float | None) -> None:
    """Against the checkpoint of step 20; nothing for the same step, an older one, or one that can't be used."""
    got = added(fed([a_checkpoint(20, {"a": "1", "b": "2"}), digest]))  # type: ignore[list-item]
    assert got == ([] if share is None else [(40, {"parameters_changed_ratio": share})])


def test_waiting_rows_are_bounded() -> None:
    """A console far ahead of a primary that never comes keeps the newest rows only."""
    assembler = Assembler("run")
    fed([*BOTH, *(console(step) for step in range(1, BUFFERED_ROWS + 500))], assembler)
    election = ChannelElected(Stream.TRAIN, "train.log", "jsonl silent")
    assert steps(fed([election], assembler))[0] == (1, 500)


def test_what_the_end_of_a_run_shows_in_is_known() -> None:
    assembler = Assembler("run")
    fed([ChannelOpened("a", STATE, shows_end=False, in_folder=True)], assembler)
    assert not assembler.shows_end
    fed([ChannelOpened("b", CONSOLE, shows_end=True, in_folder=True), ChannelOpened("c", STATE)], assembler)
    assert assembler.shows_end


def test_a_batch_that_comes_through_two_channels_is_one() -> None:
    """TRL writes completions to Parquet and logs them to wandb; the same text at another step is another batch."""
    assembler = Assembler("run")

    def dump(channel: str, step: int, text: str) -> CompletionSummary:
        return CompletionSummary(channel, step, (GroupSummary("p", 2, (0, 1), 2, (1, 1), digest=text),))

    both = [dump("wandb", 1, "a"), dump("wandb", 2, "b"), dump("parquet", 1, "a"), dump("parquet", 2, "b")]
    more = [dump("parquet", 3, "c"), dump("wandb", 3, "c"), dump("wandb", 4, "c"), dump("parquet", 4, "d")]
    kept = [item for item in (*both, *more) if item in assembler.feed(item)]
    assert [(item.channel, item.step) for item in kept] == [
        ("wandb", 1),
        ("wandb", 2),
        ("parquet", 3),
        ("wandb", 4),
        ("parquet", 4),
    ]


def test_dumps_name_only_so_many_reward_functions() -> None:
    """Columns of another name in each dump: those that were there first are read on, and so are the advantages."""
    assembler = Assembler("run")
    named: set[str] = set()
    for step in range(1, 2 * MAX_FUNCTIONS):
        rewards = {"task": (0.5, 1.0), f"at {step}": (0.0, 1.0), "advantage": (-1.0, 1.0)}
        dump = GroupSummary("p", 2, (0, 1), 2, (1, 1), digest=str(step), rewards=rewards)
        given = assembler.feed(CompletionSummary("parquet", step, (dump,)))
        (summary,) = [record for record in given if isinstance(record, CompletionSummary)]
        assert {"task", "advantage"} <= summary.groups[0].rewards.keys()
        named |= summary.groups[0].rewards.keys()
    assert named == {"task", "advantage", *(f"at {step}" for step in range(1, MAX_FUNCTIONS))}
