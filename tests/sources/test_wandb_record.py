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
    OutputRawRecord,
    Record,
    RunExitRecord,
    RunRecord,
    SummaryRecord,
)

from grpo_watch.sources.trackers.wandb_offline import WandbConfig, WandbExit, WandbHistory, decode_record


def history(*items: HistoryItem) -> bytes:
    return Record(num=7, history=HistoryRecord(item=items)).SerializeToString()


def item(value: str, *path: str) -> HistoryItem:
    return HistoryItem(nested_key=path, value_json=value)


def test_a_row_with_keys_of_old_and_new_clients() -> None:
    """Old clients fill ``key``, new ones ``nested_key``; a dictionary that was logged becomes dotted names."""
    payload = history(
        HistoryItem(key="train/loss", value_json="0.5"), item("3", "train/global_step"), item("1e-07", "a", "b")
    )
    assert decode_record(payload) == WandbHistory({"train/loss": 0.5, "train/global_step": 3.0, "a.b": 1e-07}, {})


@pytest.mark.parametrize(
    ("text", "value"), [("NaN", math.nan), ('"NaN"', "NaN"), ("Infinity", math.inf), ("null", None)]
)
def test_values_that_are_no_plain_numbers(text: str, value: object) -> None:
    record = decode_record(history(item(text, "x")))
    assert isinstance(record, WandbHistory)
    assert repr(record.row["x"]) == repr(value)


def test_a_table_is_named_by_its_file_and_its_other_keys_are_no_metrics() -> None:
    payload = history(
        item('"table-file"', "completions", "_type"),
        item('"media/table/completions_8_4a64.table.json"', "completions", "path"),
        item("16", "completions", "nrows"),
        item('{"_type": "histogram", "bins": [1, 2]}', "gradients"),
    )
    assert decode_record(payload) == WandbHistory({}, {"completions": "media/table/completions_8_4a64.table.json"})


def test_a_configuration_is_nested_again_and_the_client_s_own_part_left_out() -> None:
    update = [
        ConfigItem(key="beta", value_json="0.04"),
        ConfigItem(nested_key=["actor", "optim", "lr"], value_json="1e-06"),
        ConfigItem(key="_wandb", value_json='{"m": []}'),
        ConfigItem(key="broken", value_json="{"),
    ]
    assert decode_record(Record(config=ConfigRecord(update=update)).SerializeToString()) == WandbConfig(
        {"beta": 0.04, "actor": {"optim": {"lr": 1e-06}}}
    )
    run = RunRecord(run_id="abc", project="p", config=ConfigRecord(update=update[:1]))
    assert decode_record(Record(run=run).SerializeToString()) == WandbConfig({"beta": 0.04})


@pytest.mark.parametrize("code", [0, 1, 255, -9])
def test_an_exit(code: int) -> None:
    payload = Record(exit=RunExitRecord(exit_code=code, runtime=20)).SerializeToString()
    assert decode_record(payload) == WandbExit(code)


def test_records_that_say_nothing_of_training() -> None:
    assert decode_record(Record(output_raw=OutputRawRecord(line="{'loss': 1}")).SerializeToString()) is None
    assert decode_record(Record(summary=SummaryRecord()).SerializeToString()) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but ValueError comes out of hostile bytes, also inside a history or a configuration."""
    for field in (b"", b"\x12", b"\x2a", b"\x8a\x01", b"\x92\x01"):
        payload = field + (bytes([len(data)]) if field else b"") + data
        try:
            record = decode_record(payload)
        except ValueError:
            continue
        assert record is None or isinstance(record, (WandbHistory, WandbConfig, WandbExit))
