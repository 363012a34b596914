"""Records as wandb's own protobuf classes write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wandb.proto.wandb_internal_pb2 import (
    ConfigItem,
    ConfigRecord,
    HistoryItem,
    HistoryRecord,
    HistoryStep,
    OutputRawRecord,
    Record,
    RunExitRecord,
    RunRecord,
    SummaryRecord,
)

from grpo_watch.sources.trackers import wandb_record
from grpo_watch.sources.trackers.wandb_record import WandbConfig, WandbExit, WandbHistory


def history(*items: HistoryItem) -> bytes:
    return Record(num=7, history=HistoryRecord(item=items)).SerializeToString()


def item(value: str, *path: str) -> HistoryItem:
    return HistoryItem(nested_key=path, value_json=value)


def test_a_row_with_keys_of_old_and_new_clients() -> None:
    """Old clients fill ``key``, new ones ``nested_key``; a dictionary that was logged becomes dotted names."""
    payload = history(
        HistoryItem(key="train/loss", value_json="0.5"), item("3", "train/global_step"), item("1e-07", "a", "b")
    )
    assert wandb_record.decode(payload) == WandbHistory({"train/loss": 0.5, "train/global_step": 3.0, "a.b": 1e-07}, {})


@pytest.mark.parametrize(
    ("text", "value"), [("NaN", math.nan), ('"NaN"', "NaN"), ("Infinity", math.inf), ("null", None)]
)
def test_values_that_are_no_plain_numbers(text: str, value: object) -> None:
    record = wandb_record.decode(history(item(text, "x")))
    assert isinstance(record, WandbHistory)
    assert repr(record.row["x"]) == repr(value)


def test_a_table_is_named_by_its_file_and_its_other_keys_are_no_metrics() -> None:
    payload = history(
        item('"table-file"', "completions", "_type"),
        item('"media/table/completions_8_4a64.table.json"', "completions", "path"),
        item("16", "completions", "nrows"),
        item('{"_type": "histogram", "bins": [1, 2]}', "gradients"),
    )
    assert wandb_record.decode(payload) == WandbHistory(
        {}, {"completions": "media/table/completions_8_4a64.table.json"}
    )


def test_a_configuration_is_nested_again_and_the_client_s_own_part_left_out() -> None:
    update = [
        ConfigItem(key="beta", value_json="0.04"),
        ConfigItem(nested_key=["actor", "optim", "lr"], value_json="1e-06"),
        ConfigItem(key="_wandb", value_json='{"m": []}'),
        ConfigItem(key="broken", value_json="{"),
    ]
    assert wandb_record.decode(Record(config=ConfigRecord(update=update)).SerializeToString()) == WandbConfig(
        {"beta": 0.04, "actor": {"optim": {"lr": 1e-06}}}
    )
    run = RunRecord(run_id="abc", project="p", config=ConfigRecord(update=update[:1]))
    assert wandb_record.decode(Record(run=run).SerializeToString()) == WandbConfig({"beta": 0.04})


@pytest.mark.parametrize("code", [0, 1, 255, -9])
def test_an_exit(code: int) -> None:
    payload = Record(exit=RunExitRecord(exit_code=code, runtime=20)).SerializeToString()
    assert wandb_record.decode(payload) == WandbExit(code)


def test_records_that_say_nothing_of_training() -> None:
    assert wandb_record.decode(Record(output_raw=OutputRawRecord(line="{'loss': 1}")).SerializeToString()) is None
    assert wandb_record.decode(Record(summary=SummaryRecord()).SerializeToString()) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but ValueError comes out of hostile bytes, also inside a history or a configuration."""
    for field in (b"", b"\x12", b"\x2a", b"\x8a\x01", b"\x92\x01"):
        payload = field + (bytes([len(data)]) if field else b"") + data
        try:
            record = wandb_record.decode(payload)
        except ValueError:
            continue
        assert record is None or isinstance(record, (WandbHistory, WandbConfig, WandbExit))


@given(key=st.text(max_size=200), value=st.text(max_size=200))
def test_short_items_are_read_as_long_ones(key: str, value: str) -> None:
    """An item of one key and value is read at once; the same with a field that the reader doesn't know is not."""
    plain = item(value, key).SerializeToString()
    unknown = b"\x98\x06\x01"  # field 99, the number 1
    read = [wandb_record.decode(_history_of(one)) for one in (plain, plain + unknown)]
    assert read[0] == read[1]


KEYS = st.sampled_from(["train/loss", "a b", "é"]) | st.text(max_size=140)
LIKE_NUMBERS = st.sampled_from(["-1.5e-05", "1E+6", "2_0", "1.", "01", "1\n", "NaN", "12:30"])


@given(
    st.lists(
        st.tuples(
            st.lists(KEYS, min_size=1, max_size=2),
            LIKE_NUMBERS | st.floats().map(repr) | st.integers().map(str) | st.text(max_size=140),
        ),
        max_size=6,
    ),
    st.integers(0, 300),
)
def test_calls_are_read_at_once_as_item_by_item(items: list[tuple[list[str], str]], step: int) -> None:
    """The client puts the step behind the items; a field that the reader doesn't know makes it read each by itself."""
    row = HistoryRecord(item=[item(value, *path) for path, value in items], step=HistoryStep(num=step))
    plain = Record(history=row).SerializeToString()
    for one in row.item:
        one.MergeFromString(b"\x98\x06\x01")
    by_item = Record(history=row).SerializeToString()
    assert repr(wandb_record.decode(plain)) == repr(wandb_record.decode(by_item))  # NaN equals NaN


def _history_of(message: bytes) -> bytes:
    parsed = HistoryItem.FromString(message)
    return history(parsed)
