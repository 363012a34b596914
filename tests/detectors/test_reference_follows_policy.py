"""The join of KL rows and checkpoint pairs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from grpo_watch.engine.records import CheckpointDigest, MetricRow, Record
from tests.support.detecting import Watched
from tests.support.records import a_checkpoint, row

RULE = "reference-follows-policy"
FIRE = [("firing", 40, "warning")]


def rows(first: int, last: int, kl: float = 0.0) -> list[MetricRow]:
    known = {"kl_reference": kl, "learning_rate": 1e-5, "reward_zero_std_ratio": 0.0}
    return [row(step, **known) for step in range(first, last + 1)]


def checkpoints(second: str = "b") -> tuple[CheckpointDigest, CheckpointDigest]:
    return a_checkpoint(20, {"w": "a"}), a_checkpoint(40, {"w": second})


def test_verdict_does_not_depend_on_arrival() -> None:
    """Checkpoints before, between and after their rows: the same finding at the same step."""
    first, second = checkpoints()
    orders: list[list[Record]] = [
        [first, second, *rows(1, 40)],
        [*rows(1, 20), first, *rows(21, 40), second],
        [*rows(1, 45), first, second],
    ]
    for order in orders:
        assert Watched(RULE, beta=0.04).feed_all(order).changes == FIRE


def test_a_pair_waits_for_its_rows() -> None:
    """At row 39 the later checkpoint's own row is still missing."""
    run = Watched(RULE, beta=0.04).feed(*checkpoints()).feed_all(rows(1, 39))
    assert run.said == []
    assert run.feed_all(rows(40, 40)).changes == FIRE


@pytest.mark.parametrize("kl", [1e-9, 0.02])
def test_one_row_with_a_kl_acquits(kl: float) -> None:
    """Row 30 of 21 to 40."""
    run = Watched(RULE, beta=0.04).feed_all([*rows(1, 29), *rows(30, 30, kl), *rows(31, 40)]).feed(*checkpoints())
    assert run.changes == []
    assert run.monitor.evaluated


@pytest.mark.parametrize(("clip", "changes"), [(1e-9, []), (0.1, FIRE)])
def test_a_clip_that_leaves_nothing_is_no_fault_of_the_reference(clip: float, changes: object) -> None:
    """SGD at 1e-5 with gradients of 0.5 cut to 1e-9: some last bits of the weights change, and no KL could show it."""
    clipped = [r._replace(values={**r.values, "grad_norm": 0.5}) for r in rows(1, 40)]
    run = Watched(RULE, beta=0.04, max_grad_norm=clip).feed_all(clipped).feed(*checkpoints())
    assert run.changes == changes


LAYER, HEAD = "model.layers.0.", "lm_head.weight"


@pytest.mark.parametrize(
    ("still", "moves", "dtype", "changes"),
    [
        (f"{LAYER}input_layernorm.weight", f"{LAYER}mlp.up_proj.weight", "F32", []),
        (f"{LAYER}input_layernorm.weight", f"{LAYER}mlp.up_proj.weight", "BF16", FIRE),
        (f"{LAYER}input_layernorm.weight", HEAD, "F32", FIRE),
        (f"{LAYER}mlp.up_proj.weight", f"{LAYER}input_layernorm.weight", "F32", FIRE),
        (f"{LAYER}input_layernorm.weight", f"{LAYER}mlp.up_proj.lora_B.weight", "F32", FIRE),
    ],
)
def test_last_bits_of_small_weights_are_no_learning(still: str, moves: str, dtype: str, changes: object) -> None:
    """A norm near 1 has the coarsest float32 grid; in bfloat16 none moves; a frozen layer proves nothing."""
    saved = [
        replace(each, tensors={name: replace(one, dtype=dtype) for name, one in each.tensors.items()})
        for each in (a_checkpoint(20, {still: "a", moves: "a"}), a_checkpoint(40, {still: "a", moves: "b"}))
    ]
    assert Watched(RULE, beta=0.04).feed_all(rows(1, 40)).feed(*saved).changes == changes


@pytest.mark.parametrize(("zero", "changes"), [(True, []), (False, FIRE)])
def test_an_adapter_whose_b_is_zero_follows_nothing(*, zero: bool, changes: object) -> None:
    """Only ``lora_A`` moves: the product stays 0, whatever the reference is."""
    first, second = (
        replace(
            each, tensors={name: replace(one, zero=zero and name == "q.lora_B") for name, one in each.tensors.items()}
        )
        for each in (
            a_checkpoint(20, {"q.lora_A": "a", "q.lora_B": "b"}),
            a_checkpoint(40, {"q.lora_A": "c", "q.lora_B": "b"}),
        )
    )
    assert Watched(RULE, beta=0.04).feed_all(rows(1, 40)).feed(first, second).changes == changes


def test_unchanged_weights_are_another_fault() -> None:
    """Nothing follows anything."""
    assert Watched(RULE, beta=0.04).feed_all(rows(1, 40)).feed(*checkpoints("a")).changes == []


def test_three_rows_between_are_needed() -> None:
    """Logged every tenth step: 30 and 40 lie between, so the pair stays unjudged; one more row judges it."""
    every_tenth = [r for r in rows(1, 40) if r.step % 10 == 0]
    run = Watched(RULE, beta=0.04).feed_all(every_tenth).feed(*checkpoints())
    assert run.changes == []
    assert run.blind_reason == "too few usable KL rows between two checkpoints"
    every_fifth = [r for r in rows(1, 40) if r.step % 5 == 0]
    assert Watched(RULE, beta=0.04).feed_all(every_fifth).feed(*checkpoints()).changes == FIRE


def test_rows_before_anything_could_show_do_not_count() -> None:
    """1e-10 summed over 40 steps is below what float32 keeps apart."""
    quiet = [row(s, kl_reference=0.0, learning_rate=1e-10, reward_zero_std_ratio=0.0) for s in range(1, 41)]
    assert Watched(RULE, beta=0.04).feed_all(quiet).feed(*checkpoints()).changes == []


@pytest.mark.parametrize("settings", [{"beta": 0.0}, {"beta": 0.04, "sync_ref_model": True}], ids=["no beta", "synced"])
def test_blind_without_a_reference_of_its_own(settings: dict[str, float | bool]) -> None:
    """Following on purpose, or nothing to follow."""
    run = Watched(RULE, **settings).feed_all(rows(1, 40)).feed(*checkpoints())
    assert run.changes == []
    assert run.blind_reason


def test_an_unusable_checkpoint_makes_no_pair() -> None:
    """Cut off, so its checksums mean nothing."""
    first, second = checkpoints()
    for broken in ({"problems": ("cut off",)}, {"complete": False}):
        later = a_checkpoint(40, {"w": "b"}, **broken)
        assert Watched(RULE, beta=0.04).feed_all(itertools.chain(rows(1, 40), [first, later])).changes == []
    assert Watched(RULE, beta=0.04).feed_all(itertools.chain(rows(1, 40), [first, second])).changes == FIRE


def test_rows_whose_loss_held_no_token_are_no_evidence() -> None:
    """Cut completions are left out of the loss, and all were cut: KL and entropy are 0 of nothing."""
    cut = [r._replace(values={**r.values, "entropy": 0.0, "completion_truncated_ratio": 1.0}) for r in rows(1, 40)]
    first, second = checkpoints()
    run = Watched(RULE, beta=0.04, mask_truncated_completions=True)
    assert run.feed_all([*cut[:20], first, *cut[20:], second]).changes == []
