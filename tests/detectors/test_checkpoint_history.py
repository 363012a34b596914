"""Which checkpoint a new one is compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_watch.detectors.shared.checkpoint_history import (
    REMEMBERED,
    CheckpointHistory,
    changed,
    comparable,
    trained_by_adapter,
    where_adapters_are,
)
from grpo_watch.engine.records import CheckpointKind, TensorDigest
from tests.support.records import a_checkpoint


def compared(*steps: int) -> list[int | None]:
    """For checkpoints of these steps the step that each is compared with."""
    history = CheckpointHistory()
    found = [history.before(a_checkpoint(step, {"w": "a"})) for step in steps]
    return [None if each is None else each.step for each in found]


def test_each_is_compared_with_its_nearest_lower_step() -> None:
    assert compared(20, 40, 60) == [None, 20, 40]


def test_one_that_arrives_late_is_compared_with_what_lies_before_it() -> None:
    assert compared(20, 60, 40) == [None, 20, 20]


def test_a_step_saved_again_is_compared_like_the_first_time() -> None:
    """Never with its own earlier copy, which is equal after a final save and differs after a resume."""
    assert compared(20, 40, 40) == [None, 20, 20]


def test_a_run_started_over_in_the_same_folder_is_compared_with_itself() -> None:
    """Attempt 1 trained to step 60, attempt 2 overwrites 20 and 40 and stands still: 40 against the new 20 shows it."""
    history = CheckpointHistory()
    for step in (20, 40, 60):
        history.before(a_checkpoint(step, {"w": f"healthy {step}"}))
    assert history.before(a_checkpoint(20, {"w": "frozen"})) is None
    again = a_checkpoint(40, {"w": "frozen"})
    before = history.before(again)
    assert before is not None
    assert changed(before.tensors, again.tensors, ["w"]) == []


def test_kinds_are_not_compared_with_each_other() -> None:
    history = CheckpointHistory()
    history.before(a_checkpoint(20, {"w": "a"}))
    assert history.before(a_checkpoint(40, {"w": "a"}, kind=CheckpointKind.ADAPTER)) is None


def test_only_the_newest_are_kept() -> None:
    steps = tuple(range(10, 10 * (REMEMBERED + 3), 10))
    assert compared(*steps, 15)[-1] is None


def test_only_common_tensors_with_elements_are_compared() -> None:
    one, other = a_checkpoint(20, {"a": "1", "b": "2", "gone": "3"}), a_checkpoint(40, {"a": "1", "b": "9", "new": "3"})
    assert comparable(one.tensors, other.tensors) == ["a", "b"]
    assert changed(one.tensors, other.tensors, ["a", "b"]) == ["b"]
    assert comparable(one.tensors, a_checkpoint(60, {"a": "1"}).tensors) == ["a"]
    hollow = replace(a_checkpoint(40, {}), tensors={"a": TensorDigest("F32", (0, 4), "0")})
    assert comparable(one.tensors, hollow.tensors) == []


def test_a_weight_saved_in_another_type_or_shape_is_not_compared() -> None:
    """bf16 merged in float32, or an adapter of another rank: other bytes, and nothing moved."""
    first = replace(
        a_checkpoint(20, {}), tensors={"a": TensorDigest("BF16", (4,), "1"), "b": TensorDigest("F32", (4,), "1")}
    )
    later = replace(
        a_checkpoint(40, {}), tensors={"a": TensorDigest("F32", (4,), "2"), "b": TensorDigest("F32", (8,), "2")}
    )
    assert comparable(first.tensors, later.tensors) == []
    whole = [replace(a_checkpoint(1, {}), tensors={"f": TensorDigest("FILE", (size,), "1")}) for size in (10, 11)]
    assert comparable(*(each.tensors for each in whole)) == ["f"]


@pytest.mark.parametrize(
    ("changed_name", "merged"),
    [
        ("language_model.model.layers.0.q.weight", True),
        ("model.layers.0.q.weight", True),
        ("model.language_model.layers.0.q.weight", True),
        ("model.layers.0.experts.gate_up_proj", True),
        ("model.layers.0.experts.3.gate_proj.weight", True),
        ("model.layers.1.q.weight", False),
        ("model.layers.0.norm.weight", False),
        ("model.visual.layers.0.q.weight", False),
    ],
)
def test_modules_with_an_adapter_are_known_under_each_of_their_names(
    changed_name: str,
    merged: bool,  # noqa: FBT001  pytest passes by name
) -> None:
    """Multimodal models are saved with other names than they have in memory; experts may be saved one by one."""
    inside = "base_model.model.model.language_model.layers.0"
    names = [
        f"{inside}.q.lora_A.weight",
        f"{inside}.experts.lora_A.weight",
        f"{inside}.experts.base_layer.lora_B.weight",
    ]
    assert where_adapters_are([changed_name], [*names, changed_name]) is merged
    assert not where_adapters_are([changed_name], [*names, changed_name, f"{inside}.q.base_layer.weight"])


def test_what_an_adapter_trains_is_reported_only_beside_a_base() -> None:
    base, low, head = "layers.0.q.weight", "layers.0.q.lora_A.weight", "score.weight"
    assert trained_by_adapter([base, low], {}) == {low}
    assert trained_by_adapter([base, low, head], {"modules_to_save": "score"}) == {low, head}
    assert trained_by_adapter([low], {}) is None
    assert trained_by_adapter([base, head], {"modules_to_save": "score"}) is None
