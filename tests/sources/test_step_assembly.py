"""Rows in pieces: joined by step, held until a later step comes, and the same however often the reader is restarted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import ChannelKind, Cursor, RawRow, Stream
from grpo_watch.sources.rows import step_assembly
from grpo_watch.sources.rows.step_assembly import StepFeed, step_of

Piece = tuple[int, "int | None", dict[str, "float | None"]]


def reader(cursor: Cursor | None = None) -> StepFeed:
    return StepFeed("wandb", ChannelKind.WANDB, 0, cursor)


def given_out(feed: StepFeed) -> list[RawRow]:
    return [item for item in feed.give() if isinstance(item, RawRow)]


def cursor_of(feed: StepFeed) -> Cursor:
    position, state = feed.position({})
    return Cursor("wandb", "", position, state)


def fed(pieces: list[Piece], cursor: Cursor | None = None) -> list[RawRow]:
    """All rows of ``pieces`` (from ``cursor`` on) to the end of the input."""
    feed = reader(cursor)
    for order, step, values in pieces:
        if cursor is None or order >= cursor.position:
            feed.add(order, step, values, float(order))
    feed.flush(len(pieces))
    return given_out(feed)


def reported(rows: list[RawRow]) -> list[tuple[int, Stream | None, dict[str, float | None]]]:
    return [(row.step, row.stream, row.values) for row in rows]


def test_a_call_with_training_and_validation_is_a_row_of_training() -> None:
    """verl logs both at once."""
    values = {"critic/score/mean": 0.5, "critic/advantages/max": 1.5, "val-core/gsm8k/acc/mean@1": 0.4}
    assert reported(fed([(0, 1, values)])) == [(1, None, values)]


def test_pieces_of_a_step_are_one_row_once_a_later_step_appears() -> None:
    feed = reader()
    feed.add(0, 1, {"train/loss": 0.5}, 10.0)
    feed.add(1, 1, {"train/kl": 0.0}, 11.0)
    feed.read_to = 2
    assert (given_out(feed), cursor_of(feed).position) == ([], 0)
    feed.add(2, 2, {"train/loss": 0.4}, 12.0)
    (row,) = given_out(feed)
    assert (row.step, row.values, row.time) == (1, {"train/loss": 0.5, "train/kl": 0.0}, 11.0)
    feed.read_to = 3
    assert cursor_of(feed).position == 2
    feed.flush(3)
    assert reported(given_out(feed)) == [(2, None, {"train/loss": 0.4})]
    feed.flush(3)
    assert (given_out(feed), cursor_of(feed).position) == ([], 3)


def test_profiling_rows_are_dropped_even_under_the_step_before() -> None:
    """wandb fills ``train/global_step`` with the last known one: the timings of step 2 carry step 1."""
    pieces: list[Piece] = [
        (0, None, {"profiling/Time taken: GRPOTrainer._prepare_inputs": 2.0}),
        (1, 1, {"train/loss": 0.5}),
        (2, 1, {"profiling/Time taken: GRPOTrainer._prepare_inputs": 3.0}),
        (3, 2, {"train/loss": 0.4, "profiling/x": 1.0}),
    ]
    assert reported(fed(pieces)) == [(1, None, {"train/loss": 0.5}), (2, None, {"train/loss": 0.4})]


def test_a_piece_without_a_step_belongs_to_the_newest() -> None:
    assert reported(fed([(0, None, {"mine": 1.0}), (1, 7, {"train/loss": 0.5}), (2, None, {"mine": 2.0})])) == [
        (7, None, {"train/loss": 0.5, "mine": 2.0})
    ]


def test_null_is_a_value_and_a_newer_value_wins() -> None:
    assert reported(fed([(0, 1, {"train/reward": 0.5}), (1, 1, {"train/reward": None})])) == [
        (1, None, {"train/reward": None})
    ]


def test_evaluation_is_a_row_of_its_own() -> None:
    pieces: list[Piece] = [
        (0, 30, {"train/loss": 0.5}),
        (1, 30, {"train/epoch": 0.1}),
        (2, 30, {"eval/reward": 1.0}),
        (3, 30, {"train/epoch": 0.1}),
        (4, 31, {"train/loss": 0.4}),
    ]
    rows = fed(pieces)
    assert reported(rows[:2]) == [
        (30, None, {"train/loss": 0.5, "train/epoch": 0.1}),
        (30, Stream.EVAL, {"eval/reward": 1.0, "train/epoch": 0.1}),
    ]


def test_a_validation_before_the_first_step_makes_no_train_row() -> None:
    """verl validates first, and so early that no row has shown the framework; ``val/`` may be of training elsewhere."""
    pieces = [
        (0, 0, {"val-core/gsm8k/acc/mean@1": 0.4}),
        (1, 0, {"val-aux/num_turns/mean": 2.0}),
        (2, 1, {"val/x": 1.0}),
    ]
    assert reported(fed(pieces)) == [
        (0, Stream.EVAL, {"val-core/gsm8k/acc/mean@1": 0.4, "val-aux/num_turns/mean": 2.0}),
        (1, None, {"val/x": 1.0}),
    ]


def test_an_evaluation_between_logged_steps_makes_no_train_row() -> None:
    """transformers adds ``train/epoch`` to it, which is no row of training."""
    assert reported(fed([(0, 5, {"eval/reward": 1.0}), (1, 5, {"train/epoch": 0.2})])) == [
        (5, Stream.EVAL, {"eval/reward": 1.0, "train/epoch": 0.2})
    ]


def test_a_late_piece_neither_ends_the_newest_step_nor_makes_a_row() -> None:
    feed = reader()
    for order, step, key in [(0, 5, "a"), (1, 6, "a"), (2, 5, "b")]:
        feed.add(order, step, {key: 1.0})
    assert reported(given_out(feed)) == [(5, None, {"a": 1.0})]
    feed.add(3, 6, {"b": 1.0})
    assert (given_out(feed), feed.late) == ([], 1)
    feed.add(4, 7, {"a": 1.0})
    assert reported(given_out(feed)) == [(6, None, {"a": 1.0, "b": 1.0})]


def test_a_resumed_job_goes_back_and_on() -> None:
    pieces: list[Piece] = [(i, step, {"loss": float(i)}) for i, step in enumerate([9, 10, 5, 5, 6, 7])]
    assert reported(fed(pieces)) == [
        (step, None, {"loss": value}) for step, value in [(9, 0.0), (10, 1.0), (5, 3.0), (6, 4.0), (7, 5.0)]
    ]


def test_a_row_has_room_for_so_many_keys() -> None:
    full = {f"k{i}": 0.0 for i in range(step_assembly.MOST_KEYS)}
    (row,) = fed([(0, 1, full), (1, 1, {"one more": 1.0, "k7": 7.0})])
    assert (len(row.values), row.values["k7"]) == (step_assembly.MOST_KEYS, 7.0)


def test_which_key_holds_the_step() -> None:
    assert step_of({"train/global_step": 3.0, "step": 9}) == 3
    assert step_of({"training/global_step": 4, "critic/score/mean": 0.5}) == 4
    assert step_of({"training_step": 5, "global_step": 5 * 1024}) == 5  # open-instruct counts episodes there
    assert step_of({"train/global_step": "NaN", "train/loss": 0.1}) is None


PIECES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)),
        st.dictionaries(
            st.sampled_from(["train/loss", "train/epoch", "eval/reward", "kl", "profiling/x"]),
            st.one_of(st.none(), st.integers(0, 9).map(float)),
            max_size=3,
        ),
    ),
    max_size=30,
)


@given(PIECES)
def test_a_reader_restarted_after_any_row_gives_the_rest_once(drawn: list[tuple[int | None, dict[str, float]]]) -> None:
    pieces: list[Piece] = [(order, step, dict(values)) for order, (step, values) in enumerate(drawn)]
    whole, feed, given = fed(pieces), reader(), 0
    for order, step, values in [*pieces, (len(pieces), None, {})]:
        feed.add(order, step, values, float(order))
        if order == len(pieces):
            feed.flush(order)
        feed.read_to = order + 1
        for _ in feed.give():
            given += 1
            assert fed(pieces, cursor_of(feed)) == whole[given:]
        assert fed(pieces, cursor_of(feed)) == whole[given:]
    assert given == len(whole)
