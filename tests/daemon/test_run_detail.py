"""What a run's page shows beyond its snapshot: equal completions, changed tensors; bounded, stored and read again."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import asdict, replace

from grpo_watch.daemon import run_detail
from grpo_watch.daemon.run_detail import RecentBatches, RunDetail, RunDetailRecorder, pack, unpack, unpack_sparks
from grpo_watch.engine.records import (
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    GroupSummary,
    MetricRow,
    Stream,
    TensorDigest,
)
from grpo_watch.report import tensor_map
from grpo_watch.report.charts import sparks
from grpo_watch.report.tensor_map import ABSENT, OUTSIDE, TensorMap, place_of


def group(*pattern: int) -> GroupSummary:
    return GroupSummary("p", len(pattern), pattern, len(set(pattern)), (20,) * len(pattern))


def batch(step: int, *groups: GroupSummary) -> CompletionSummary:
    return CompletionSummary("c", step, groups)


def checkpoint(step: int, **sums: str) -> CheckpointDigest:
    tensors = {name.replace("__", "."): TensorDigest("F32", (2,), value) for name, value in sums.items()}
    return CheckpointDigest("c", step, f"checkpoint-{step}", complete=True, tensors=tensors)


def test_a_batch_keeps_who_is_equal() -> None:
    kept = RecentBatches()
    kept.take(batch(5, group(0, 1, 0, 1), group(0, 1, 2, 3)))
    (view,) = kept.kept
    assert view.patterns == (bytes([0, 1, 0, 1]), bytes([0, 1, 2, 3]))
    assert (view.step, view.groups, view.completions, view.repeated) == (5, 2, 8, 2)


def test_rows_of_the_table_of_completions() -> None:
    """Lengths and rewards of the first completions; they come back from the state as they were."""
    one = replace(group(0, 0), rewards={"format": (0.5, None), "advantage": (math.inf, -1.0)}, shown=("p", "a", "a"))
    recorder = RunDetailRecorder()
    recorder.observe(batch(5, one, group(*range(40))))
    detail = recorder.detail()
    first, second = detail.batches[0].listed
    assert (first.length_column(), first.shown) == ([20, 20], ("p", "a", "a"))
    assert first.score_columns() == {"format": [0.5, None], "advantage": [math.inf, -1.0]}
    assert (len(second.length_column()), second.shown) == (run_detail.LISTED_EACH, ())
    assert unpack(pack(detail)) == detail


def test_a_batch_of_an_older_state_lists_nothing() -> None:
    stored = json.loads(json.dumps(asdict(RunDetail())))
    stored["batches"] = [{"step": 1, "groups": 1, "completions": 2, "repeated": 0, "patterns": ["AAE="], "reason": ""}]
    packed = zlib.compress(json.dumps(stored).encode())
    front = zlib.compress(b"{}")
    (view,) = unpack(b"close-up 1\n" + len(front).to_bytes(4, "big") + front + packed).batches
    assert (view.patterns, view.listed) == ((bytes([0, 1]),), ())


def test_batches_are_bounded() -> None:
    kept = RecentBatches()
    wide = group(*range(300))
    for step in range(100):
        kept.take(batch(step, *(wide,) * 200))
    kept.take(batch(99, wide))
    assert [view.step for view in kept.kept] == list(range(92, 100))
    assert kept.kept[-1].groups == 1
    assert len(kept.kept) == run_detail.BATCHES
    assert len(kept.kept[0].patterns) == run_detail.GROUPS
    assert len(kept.kept[0].patterns[0]) == run_detail.POSITIONS
    assert (kept.kept[0].groups, kept.kept[0].completions) == (200, 60_000)
    assert len(kept.kept[0].listed) == run_detail.LISTED_GROUPS


def test_the_map_of_a_checkpoint() -> None:
    """Layer 0 keeps its query, layer 1 changes it; of its two experts one changes."""
    names = {
        "model__embed_tokens__weight": "aa",
        "model__layers__0__self_attn__q_proj__weight": "aa",
        "model__layers__1__self_attn__q_proj__weight": "ab",
        "model__layers__1__mlp__experts__0__up_proj__weight": "aa",
        "model__layers__1__mlp__experts__1__up_proj__weight": "ab",
    }
    seen = TensorMap()
    seen.take(checkpoint(10, **{name: value[0] for name, value in names.items()}))
    seen.take(checkpoint(20, **{name: value[1] for name, value in names.items()}))
    first, second = seen.kept
    assert (first.before, first.tensors, first.cells) == (None, 5, b"")
    assert (second.before, second.tensors, second.changed) == (10, 5, 2)
    assert second.layers == (OUTSIDE, 0, 1)
    assert second.kinds == ("self_attn.q_proj", "mlp.experts.*.up_proj", "embed_tokens")
    assert list(second.cells) == [ABSENT, ABSENT, 0, 0, ABSENT, ABSENT, 100, 50, ABSENT]


def test_names_of_adapters_and_wrappers() -> None:
    assert place_of("base_model.model.model.layers.7.self_attn.v_proj.lora_B.weight") == (7, "self_attn.v_proj.lora_B")
    assert place_of("transformer.h.3.attn.c_attn.bias") == (3, "attn.c_attn.bias")
    assert place_of("module.lm_head.weight") == (OUTSIDE, "lm_head")


def test_maps_are_bounded() -> None:
    seen = TensorMap()
    names = [f"layers.{layer}.kind{kind}.w" for layer in range(210) for kind in range(42)]
    for step in range(10):
        tensors = {name: TensorDigest("F32", (1,), str(step)) for name in names}
        seen.take(CheckpointDigest("c", step, f"checkpoint-{step}", complete=True, tensors=tensors))
    assert len(seen.kept) == tensor_map.CHECKPOINTS
    assert len(seen.kept[-1].cells) == tensor_map.LAYERS * tensor_map.KINDS
    assert (seen.kept[-1].tensors, seen.kept[-1].changed) == (210 * 42, 210 * 42)


def test_what_cannot_be_compared_is_listed() -> None:
    seen = TensorMap()
    broken = CheckpointDigest("c", 5, "checkpoint-5", complete=True, tensors={}, problems=("model.safetensors: cut",))
    seen.take(broken)
    seen.take(CheckpointDigest("c", 6, "x", complete=False, tensors={}, kind=CheckpointKind.ADAPTER))
    assert [(view.step, view.kind, view.problems) for view in seen.kept] == [
        (5, "full", ("model.safetensors: cut",)),
        (6, "adapter", ()),
    ]


def test_it_comes_back_from_the_store() -> None:
    detail_recorder = RunDetailRecorder()
    for step in range(1, 2_001):
        detail_recorder.observe(
            MetricRow("r", Stream.TRAIN, 1, step, {"reward_mean": step / 7, "loss": None}, time=1e9 + step)
        )
    detail_recorder.observe(MetricRow("r", Stream.EVAL, 1, 9_999, {"reward_mean": 0.0}))
    detail_recorder.observe(batch(3, group(0, 1, 0, 1)))
    detail_recorder.observe(checkpoint(10, layers__0__w="a"))
    detail_recorder.observe(checkpoint(20, layers__0__w="b"))
    detail = detail_recorder.detail()
    assert detail.thinned.steps[-1] == 2_000
    packed = pack(detail)
    again = unpack(packed)
    assert again.thinned.series() == detail.thinned.series()
    assert (again.batches, again.weights) == (detail.batches, detail.weights)
    assert unpack_sparks(packed) == sparks(detail.thinned)


def test_sparklines_are_worked_out_once_for_each_row() -> None:
    detail_recorder = RunDetailRecorder()
    assert detail_recorder.sparks() == {}
    detail_recorder.observe(MetricRow("r", Stream.TRAIN, 1, 1, {"reward_mean": 0.5, "loss": 1.0}))
    first = detail_recorder.sparks()
    assert first == sparks(detail_recorder.detail().thinned)
    assert detail_recorder.sparks() is first
    detail_recorder.observe(MetricRow("r", Stream.TRAIN, 1, 1, {"entropy": 2.0}, supplement=True))
    assert set(detail_recorder.sparks()) == {"reward", "entropy"}


def test_what_an_older_version_stored_is_still_drawn() -> None:
    series = {"step": [1, 2], "reward_mean": [0.5, None]}
    packed = zlib.compress(json.dumps(series).encode())
    assert unpack(packed).thinned.series() == series
    assert unpack_sparks(packed)["reward"].last == 0.5
    assert unpack(None) == RunDetail()


def test_the_mark_that_state_files_hold_stays() -> None:
    """Another mark would make every stored run detail unreadable."""
    assert pack(RunDetail()).startswith(b"close-up 1\n")
