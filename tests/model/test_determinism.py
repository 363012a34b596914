"""The determinism contract over real runs: chunking, interleaving, restarts, rewinds and replay change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import (
    ChannelElected,
    ChannelKind,
    ChannelOpened,
    Cursor,
    EventKind,
    Item,
    RawRow,
    RunConfig,
    RunEvent,
    Setting,
    Tick,
    Transition,
)
from grpo_watch.sources.base import Source
from grpo_watch.sources.completions.jsonl_source import CompletionsJsonlSource
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.rows.jsonl import JsonlSource
from grpo_watch.store.codec import decode_block, encode_block, encode_item
from tests.support.bundles import RECORDED, bundled_runs, unpack
from tests.support.feeding import END, Recording, a_pipeline, fed, recorded, replayed, short
from tests.support.records import a_batch, a_checkpoint

FROZEN_SWIFT = "ms-swift-4.6.0-04b-frozen-optnoop-full"
DUPLICATES_SWIFT = "ms-swift-4.6.0-05a-dups-i-eq-i-plus-3"
RESUMED_SWIFT = "ms-swift-4.6.0-16-resume"
FROZEN_TRL = "trl-1.16.0-09-frozen-lr0"
CRASHED_TRL = "trl-0.24.0-19-crash-resume"
SEVERAL_RUNS = "trl-1.16.0-20-config-errors"
RUNS = [name for name in bundled_runs() if name != SEVERAL_RUNS]

few = settings(derandomize=True, deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
some = settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
ORDER = st.lists(st.integers(0, 11), min_size=40, max_size=400)
"""Which source speaks next; what is left when the list is over comes source after source."""


def group_size() -> int | None:
    """The completions' groups are found by their prompts."""
    return None


def jsonl(path: Path, cursor: Cursor | None) -> Source:
    return JsonlSource("log", path, [path.parent], cursor=cursor)


def console(path: Path, cursor: Cursor | None) -> Source:
    return ConsoleSource("log", path, [path.parent], cursor=cursor)


def completions(path: Path, cursor: Cursor | None) -> Source:
    return CompletionsJsonlSource("log", path, [path.parent], group_size, 0, cursor)


FILES: list[tuple[Callable[[Path, Cursor | None], Source], str, str]] = [
    (jsonl, FROZEN_SWIFT, "logging.jsonl"),
    (completions, DUPLICATES_SWIFT, "completions.jsonl"),
    (console, FROZEN_SWIFT, "train.log"),
    (console, CRASHED_TRL, "train.log"),
    (console, FROZEN_TRL, "train.log"),
]
files = pytest.mark.parametrize(("source", "run", "file"), FILES, ids=[f"{run}-{file}" for _, run, file in FILES])


def content(run: str, file: str) -> bytes:
    """The bytes of a bundled run's text file."""
    with TemporaryDirectory() as folder:
        (path,) = unpack(run, Path(folder)).rglob(file)
        return path.read_bytes()


def whole(source: Callable[[Path, Cursor | None], Source], data: bytes) -> list[Item]:
    """The items of a file that is read at once."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(data)
        opened = source(path, None)
        items = [*opened.poll(None), *opened.finish()]
        opened.close()
        return items


def cut_points(data: bytes) -> st.SearchStrategy[list[int]]:
    """Anywhere, and next to the characters that end lines, bars and rows."""
    marks = [at + offset for at, byte in enumerate(data) if byte in b"\r\n}" for offset in (0, 1)]
    return st.lists(st.one_of(st.integers(0, len(data)), st.sampled_from(marks)), max_size=25).map(sorted)


@pytest.mark.slow
@files
def test_chunks_of_a_growing_file_give_the_same_items(source: Any, run: str, file: str) -> None:
    """Polled after every chunk, whole lines or not; so the transitions are the same, too."""
    data = content(run, file)
    expected = whole(source, data)

    @few
    @given(cut_points(data))
    def check(cuts: list[int]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "log")
            path.write_bytes(b"")
            opened, items = source(path, None), []
            for start, end in pairwise([0, *cuts, len(data)]):
                with path.open("ab") as log:
                    log.write(data[start:end])
                items += opened.poll(None)
            items += opened.finish()
            opened.close()
        assert items == expected

    assert expected
    check()


@pytest.mark.slow
@files
def test_a_reader_restarted_after_any_item_goes_on_without_loss_or_repetition(source: Any, run: str, file: str) -> None:
    """While the file grows, the reader is thrown away in mid-poll and rebuilt from its cursor."""
    data = content(run, file)
    expected = whole(source, data)

    @few
    @given(cut_points(data), st.lists(st.integers(0, 30), min_size=1, max_size=12))
    def check(cuts: list[int], stops: list[int]) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "log")
            path.write_bytes(b"")
            opened, items = source(path, None), []
            for turn, (start, end) in enumerate(pairwise([0, *cuts, len(data)])):
                with path.open("ab") as log:
                    log.write(data[start:end])
                for count, item in enumerate(opened.poll(None)):
                    items.append(item)
                    if count == stops[turn % len(stops)]:
                        break
                cursor = opened.cursor()
                opened.close()
                opened = source(path, cursor)
            items += [*opened.poll(None), *opened.finish()]
            opened.close()
        assert items == expected

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_sources_in_any_order_say_the_same(name: str) -> None:
    """Console, JSON lines, trainer_state, completions, checkpoints: order kept inside each, shuffled between them.

    Compared are all alerts with attempt, episode, severity and steps, against the offline driver.
    """
    run, expected = recorded(name), short(replayed(name))

    @few
    @given(ORDER)
    def check(order: list[int]) -> None:
        assert short(fed([*run.merged(order), END])) == expected

    assert short(fed([*run.in_turn(), END])) == expected
    if len(run.lanes) > 1:
        check()


def rows(name: str) -> Recording:
    """The console of a bundled TRL run alone."""
    run = recorded(name)
    return Recording(run.first, {"console": run.lanes["console"]})


def always_the_same(run: Recording) -> set[tuple[object, ...]]:
    """What any order says; fails where orders disagree."""
    expected = short(fed([*run.in_turn(), END]))

    @some
    @given(ORDER)
    def check(order: list[int]) -> None:
        assert short(fed([*run.merged(order), END])) == expected

    check()
    backwards = Recording(run.first, dict(reversed(run.lanes.items())))
    assert short(fed([*backwards.in_turn(), END])) == expected
    return expected


def test_checkpoints_beside_rows() -> None:
    """Real rows of a run with learning rate 0; its checkpoints 20 to 100 hold the same bytes."""
    run = rows(FROZEN_TRL)
    run.lanes["checkpoints"] = [a_checkpoint(step, {"w": "same"}) for step in range(20, 101, 20)]
    said = always_the_same(run)
    assert ("parameters-unchanged", "", 1, 1, "firing", "critical", 20, 40) in said
    assert {each[0] for each in said} == {"parameters-unchanged", "learning-rate-zero"}


def made_rows(count: int, kl: float, entropy: Callable[[int], float]) -> list[Item]:
    """Rows of steps 1 to ``count`` that learn at 1e-4 with a full signal."""
    fixed = {"reward": 0.5, "reward_std": 0.4, "frac_reward_zero_std": 0.0, "learning_rate": 1e-4, "grad_norm": 0.3}
    return [
        RawRow("log", ChannelKind.JSONL, step, {**fixed, "kl": kl, "entropy": entropy(step)})
        for step in range(1, count + 1)
    ]


BETA: list[Item] = [
    ChannelOpened("log", ChannelKind.JSONL, shows_end=True),
    ChannelOpened("console", ChannelKind.CONSOLE, shows_end=True),
    RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "args"), "num_generations": Setting(4, "args")}),
]


@pytest.mark.slow
def test_a_join_of_rows_and_checkpoints() -> None:
    """KL is 0 on every row although each checkpoint differs from the one before: the reference follows."""
    saved: list[Item] = [a_checkpoint(step, {"w": str(step)}) for step in (10, 20, 30)]
    said = always_the_same(Recording(BETA, {"rows": made_rows(40, 0.0, lambda _: 2.0), "checkpoints": saved}))
    assert ("reference-follows-policy", "", 1, 1, "firing", "warning", 10, 20) in said
    assert {each[0] for each in said} == {"reference-follows-policy", "kl-stuck-at-zero"}


@pytest.mark.slow
def test_a_join_of_rows_and_completions_knows_no_future() -> None:
    """One text per group is greedy decoding at the entropy of its time (2.0), however high it rises later.

    The texts are short: at 0.7 for two that are equal by chance it takes 39 copies for 1e-6, six to a batch.
    """
    batches: list[Item] = [a_batch(step, (0, 0, 0, 0), (0, 0, 0, 0)) for step in range(5, 13)]
    batches += [a_batch(step, (0, 1, 2, 3), (0, 1, 2, 3)) for step in range(13, 20)]
    lanes = {"rows": made_rows(40, 0.1, lambda step: 2.0 if step < 20 else 9.0), "completions": batches}
    said = {each for each in always_the_same(Recording(BETA, lanes)) if each[0] == "duplicate-completions"}
    assert said == {
        ("duplicate-completions", "", 1, 1, "firing", "critical", 5, 11),
        ("duplicate-completions", "", 1, 1, "resolved", "critical", 5, 13),
    }


def test_a_traceback_read_before_the_last_rows_of_another_channel() -> None:
    """The console says at step 30 that the job died; the JSON lines of that time may be read after it."""
    died: list[Item] = [RunEvent("console", EventKind.TRACEBACK, 30, "ValueError: no")]
    said = always_the_same(Recording(BETA, {"rows": made_rows(30, 0.1, lambda _: 2.0), "console": died}))
    assert said == {("run-crashed", "", 1, 1, "firing", "critical", 30, 30)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [FROZEN_SWIFT, DUPLICATES_SWIFT, RESUMED_SWIFT, CRASHED_TRL])
def test_a_restart_after_any_item_repeats_and_loses_nothing(name: str) -> None:
    """At every item the pipeline is thrown away and rebuilt from the stored items, what that says being discarded."""
    items = [*recorded(name).merged(range(1000)), END]
    stored = decode_block(encode_block([encode_item(item) for item in items]))
    uninterrupted = fed(items)
    reported: list[Transition] = []
    for count, item in enumerate(items):
        rebuilt = a_pipeline()
        fed(stored[:count], rebuilt)
        reported += rebuilt.feed(item)
    assert reported == uninterrupted


def test_a_crash_and_a_resume_are_two_attempts_of_one_run() -> None:
    """The real log: rows 1 to 50, a ValueError, resumed from checkpoint 40 with row 41, finished at 100."""
    pipeline = a_pipeline()
    said = fed([*recorded(CRASHED_TRL).in_turn(), END], pipeline)
    assert [(t.rule, t.attempt, t.to_state.value, t.step) for t in said] == [
        ("run-crashed", 1, "firing", 50),
        ("run-crashed", 1, "resolved", 41),
    ]
    run = pipeline.snapshot()
    assert (run.attempt, run.step, run.rows) == (2, 100, 110)


def lives(*spans: Iterable[int]) -> list[Item]:
    """Frozen rows of several attempts, distinguished by their entropy."""
    return [
        item._replace(values={**item.values, "entropy": 1.0 + life})
        for life, span in enumerate(spans)
        for item in made_rows(99, 0.0, lambda _: 0.0)
        if isinstance(item, RawRow) and item.step in span
    ]


def test_a_rewind_drops_what_was_pending_and_rewinds_the_windows() -> None:
    """Frozen from the start. The first row proves nothing, so the breach begins at 2 and would fire at 10 (2 + 8).

    Attempt 1 dies at 8. Attempt 2 begins at 4, breaches from its second row (5) on and fires at 13.
    """
    said = fed([*BETA, *lives(range(1, 9), range(4, 31))])
    assert [(t.to_state.value, t.attempt, t.episode, t.first_step, t.step) for t in said] == [
        ("pending", 1, 1, 2, 2),
        ("pending", 2, 2, 5, 5),
        ("firing", 2, 2, 5, 13),
    ]


def test_what_fires_goes_on_firing_through_a_rewind() -> None:
    """One page, whether the job is restarted once or five times."""
    said = fed([*BETA, *lives(range(1, 21), range(11, 31), range(1, 26), range(21, 41))])
    assert [(t.to_state.value, t.attempt, t.step) for t in said] == [("pending", 1, 2), ("firing", 1, 10)]


def live(run: Recording) -> list[Transition]:
    """The sources polled in turn beside a ticking clock, elections included, then the same end."""
    pipeline, said = a_pipeline(), []
    for number, item in enumerate(run.merged(range(2000))):
        now = RECORDED - 100 + number / 100
        seen = {"seen": now} if hasattr(item, "seen") else {}
        said += pipeline.feed(item._replace(**seen) if isinstance(item, RawRow) else replace(item, **seen))
        if number % 5 == 0:
            for election in pipeline.elections(now):
                said += pipeline.feed(election)
            said += pipeline.feed(Tick(now))
    return said + pipeline.feed(END)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_offline_equals_live(name: str) -> None:
    """``check`` says of the files what the daemon said while they grew (clocks within the run's own pace)."""
    assert short(live(recorded(name))) == short(replayed(name))


def test_an_election_is_an_item_like_any_other() -> None:
    """The JSON lines fall silent at step 20, the console goes on: stored and replayed, the election says the same."""
    kinds = {"jsonl": ChannelKind.JSONL, "console": ChannelKind.CONSOLE}
    pipeline, stored, said = a_pipeline(), list[Item](BETA), fed(BETA)
    pipeline = a_pipeline()
    for item in BETA:
        pipeline.feed(item)
    for number, kind in [(n, k) for n in range(1, 61) for k in kinds if k == "console" or n <= 20]:
        (row,) = [each for each in made_rows(60, 0.0, lambda _: 2.0) if getattr(each, "step", 0) == number]
        item = row._replace(channel=kind, kind=kinds[kind], seen=number * 10.0)
        due = list(pipeline.elections(number * 10.0))
        for each in [*due, item]:
            stored.append(each)
            said += pipeline.feed(each)
    assert [item.channel for item in stored if isinstance(item, ChannelElected)] == ["console"]
    assert fed(stored) == said
    assert pipeline.snapshot().step == 60
    assert [(t.rule, t.to_state.value, t.step) for t in said][-1] == ("kl-stuck-at-zero", "firing", 10)
