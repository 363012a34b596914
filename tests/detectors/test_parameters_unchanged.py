"""Pairs of checkpoints: which are compared, and what identical bytes mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from grpo_watch.detectors.shared.likely_causes import UPDATES
from grpo_watch.engine.diagnosis import diagnose
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.record_parts import Movement
from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, TensorDigest
from grpo_watch.engine.traits import likely
from tests.support.detecting import DETECTORS, SHIPPED, Watched
from tests.support.records import a_checkpoint, row

RULE = "parameters-unchanged"
SAME = {"a.w": "1", "b.w": "2"}
MOVED = {"a.w": "1", "b.w": "3"}


def fed(*checkpoints: CheckpointDigest) -> Watched:
    return Watched(RULE).feed(*checkpoints)


def test_one_identical_pair_fires_with_both_named() -> None:
    """first_step is the earlier checkpoint, the firing step the later one."""
    run = fed(a_checkpoint(20, SAME), a_checkpoint(40, SAME))
    assert run.changes == [("firing", 40, "critical")]
    said = run.said[-1]
    assert said.first_step == 20
    assert said.reading.evidence["optimizer_steps_between"] == 20
    assert said.reading.evidence["later_checkpoint"] == "checkpoint-40"


def test_one_changed_byte_acquits() -> None:
    """No tolerance: one tensor of two is enough."""
    assert fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED)).changes == []


def test_frozen_in_mid_run_and_thawed() -> None:
    """40 = 60 = 80, 100 differs."""
    run = fed(a_checkpoint(20, SAME), *(a_checkpoint(s, MOVED) for s in (40, 60, 80)), a_checkpoint(100, SAME))
    assert run.changes == [("firing", 60, "critical"), ("resolved", 100, "critical")]


def test_repeats_of_a_step_are_not_compared() -> None:
    """The final save, a best-model copy, a replayed step after a resume."""
    assert fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED), a_checkpoint(40, MOVED)).changes == []
    resumed = fed(a_checkpoint(20, SAME), a_checkpoint(40, MOVED), a_checkpoint(20, SAME), a_checkpoint(40, MOVED))
    assert resumed.changes == []


def test_survives_a_new_attempt() -> None:
    """Resumed at 41, saved at 60: compared with the 40 of the attempt before."""
    run = Watched(RULE).feed(row(40), a_checkpoint(40, SAME), row(41, attempt=2), row(60, attempt=2))
    assert run.feed(a_checkpoint(60, SAME)).changes == [("firing", 60, "critical")]


def test_kinds_are_kept_apart() -> None:
    """The frozen base beside an adapter is the same on purpose when nobody trains it, and is no adapter."""
    adapter = {"kind": CheckpointKind.ADAPTER}
    run = fed(a_checkpoint(20, SAME, **adapter), a_checkpoint(30, SAME), a_checkpoint(40, MOVED, **adapter))
    assert run.changes == []


def test_tensors_without_elements_are_not_compared() -> None:
    """ZeRO-3 saved ungathered: every such tensor has the bytes of nothing."""
    empty = {"w": TensorDigest("BF16", (0,), "e")}
    run = fed(*(replace(a_checkpoint(step, {}), tensors=empty) for step in (20, 40)))
    assert run.changes == []
    assert "share no tensor" in run.blind_reason


@pytest.mark.parametrize("broken", [{"complete": False}, {"problems": ("model.safetensors: cut off",)}])
def test_unusable_checkpoints_are_skipped(broken: dict[str, object]) -> None:
    """The next good one is compared with the last good one before."""
    run = fed(a_checkpoint(20, SAME), a_checkpoint(40, SAME, **broken))
    assert run.changes == []
    assert run.feed(a_checkpoint(60, SAME)).changes == [("firing", 60, "critical")]
    assert run.said[-1].first_step == 20


def test_steps_in_any_order_are_compared_with_their_nearest_lower() -> None:
    """A reader may list checkpoint-100 before checkpoint-20; 60 is compared with 20, not with 100."""
    assert fed(a_checkpoint(100, MOVED), a_checkpoint(20, SAME), a_checkpoint(60, MOVED)).changes == []


def of_files(step: int, checksum: str) -> CheckpointDigest:
    """A distributed checkpoint: two files, compared as a whole."""
    files = {name: TensorDigest("FILE", (100,), checksum + name) for name in ("__0_0.distcp", "__1_0.distcp")}
    return replace(a_checkpoint(step, {}), tensors=files)


def test_whole_files_prove_only_when_they_are_equal() -> None:
    run = fed(of_files(20, "a"), of_files(40, "b"))
    assert run.changes == []
    assert "files that differ prove nothing" in run.blind_reason
    assert run.feed(of_files(60, "b")).changes == [("firing", 60, "critical")]


def with_optimizer(step: int, tensors: dict[str, str], moments: str, masters: str | None = None) -> CheckpointDigest:
    state: dict[str, str | int] = {"moments": moments, "moment_tensors": 4}
    return a_checkpoint(step, tensors, optimizer=state if masters is None else state | {"masters": masters})


@pytest.mark.parametrize(
    ("moments", "masters", "words"),
    [
        ("m2", None, "the optimizer's moments changed, so gradients arrive and the updates are lost"),
        ("m2", "f2", "the float32 copies changed, so the updates are lost in rounding"),
        ("m1", None, "the optimizer's moments did not change either, so it never stepped"),
        ("m1", "f1", "the optimizer's moments did not change either, so it never stepped"),
    ],
)
def test_what_the_optimizer_says_of_frozen_weights(moments: str, masters: str | None, words: str) -> None:
    run = fed(with_optimizer(20, SAME, "m1", masters and "f1"), with_optimizer(40, SAME, moments, masters))
    assert run.changes == [("firing", 40, "critical")]
    assert run.said[-1].reading.message.endswith(words)


def test_moments_that_never_change_beside_weights_that_do() -> None:
    """The optimizer that is saved is not the one that trains; a warning of its own, and it ends."""
    run = fed(with_optimizer(20, SAME, "m1"), with_optimizer(40, MOVED, "m1"))
    assert run.changes == [("firing", 40, "warning")]
    assert run.said[-1].key == "optimizer"
    assert run.headline == "The saved optimizer is not the one that trains"
    run.feed(with_optimizer(60, SAME, "m2"))
    assert run.changes[-1] == ("resolved", 60, "warning")


def test_moments_that_one_checkpoint_lacks_say_nothing() -> None:
    assert fed(with_optimizer(20, SAME, "m1"), a_checkpoint(40, MOVED)).changes == []


LAYERED = (*(f"model.layers.{layer}.{part}.weight" for layer in (0, 1) for part in ("q", "up")), "embed", "bias")


def stepped(step: int, *times: int) -> CheckpointDigest:
    """Each tensor of ``LAYERED`` has changed so many times until this step."""
    tensors = {
        name: TensorDigest("F32", (64, 64), f"{name} {count}") for name, count in zip(LAYERED, times, strict=True)
    }
    return replace(a_checkpoint(step, {}), tensors=tensors)


def test_layers_frozen_from_the_start_are_nobodys_matter() -> None:
    run = fed(*(stepped(10 * n, n, n, 0, 0, n, 0) for n in range(1, 6)))
    assert run.changes == []


def test_matrices_that_stay_while_norms_move_were_left_out() -> None:
    """A warning until one moves; a frozen layer beside others that train is none, nor are vectors alone."""

    def saved(step: int, norm: str, matrix: str, head: str = "1") -> CheckpointDigest:
        shapes = {"norm.w": (norm, (4,)), "q.w": (matrix, (4, 4)), "head.w": (head, (8, 4))}
        found = {name: TensorDigest("F32", shape, checksum) for name, (checksum, shape) in shapes.items()}
        return replace(a_checkpoint(step, {}), tensors=found)

    run = fed(saved(10, "1", "1"), saved(20, "2", "1"))
    assert (run.changes, run.headline) == ([("firing", 20, "warning")], "Only norms and biases are trained")
    assert run.feed(saved(30, "3", "2")).changes[-1] == ("resolved", 30, "warning")
    assert fed(saved(10, "1", "1"), saved(20, "2", "1", "2")).changes == []
    assert fed(a_checkpoint(10, SAME), a_checkpoint(20, MOVED)).changes == []


def test_a_frozen_model_says_what_changed_before() -> None:
    run = fed(stepped(10, 0, 0, 0, 0, 0, 0), stepped(20, 1, 1, 0, 0, 1, 0), stepped(30, 1, 1, 0, 0, 1, 0))
    assert run.changes == [("firing", 30, "critical")]
    assert run.said[-1].reading.evidence["changed_before"] == 3
    assert run.said[-1].reading.evidence["never_changed"] == 3


def test_an_adapter_beside_its_base_is_judged_by_what_it_trains() -> None:
    """The base drifts, the adapter stands still: frozen."""
    first = {"q.base_layer.weight": "1", "q.lora_B.weight": "2"}
    second = {"q.base_layer.weight": "9", "q.lora_B.weight": "2"}
    assert fed(a_checkpoint(10, first), a_checkpoint(20, second)).changes == [("firing", 20, "critical")]


def test_still_the_base_model() -> None:
    run = fed(a_checkpoint(20, SAME, base="models/base"))
    assert run.changes == [("firing", 20, "critical")]
    assert run.said[-1].reading.message == "all 2 tensors of checkpoint 20 are identical to the base model models/base"
    assert run.feed(a_checkpoint(40, MOVED)).changes[-1] == ("resolved", 40, "critical")


def test_a_base_without_a_signal_since() -> None:
    """Its first steps had none; only after ten such rows is it reported, and explained."""
    same = a_checkpoint(4, SAME, base="/models/base")
    assert Watched(RULE).feed(*(row(step, **DEAD) for step in range(1, 5)), same).changes == []
    later = a_checkpoint(10, SAME, base="/models/base")
    run = Watched(RULE).feed(*(row(step, **DEAD) for step in range(1, 11)), later)
    assert run.changes == [("firing", 10, "critical")]


@pytest.mark.parametrize("step", [0, 1])
def test_a_checkpoint_before_any_update_may_be_the_base(step: int) -> None:
    """The first step of a warm-up has a rate of 0."""
    assert fed(a_checkpoint(step, SAME, base="models/base")).changes == []


@pytest.mark.parametrize(
    ("rates", "steps", "fires"),
    [
        ((1e-6, 1e-6, 2.5e-12), (999, 1000, 1001), False),  # a cosine's last step, saved once more
        ((1e-6, 1e-12), (990, 1000), False),  # logged every ten steps: the last row's rate stands for the next
        ((1e-6, 1e-6), (1000, 1001), True),  # one step at the full rate
        ((0.0, 0.0), (1000, 1001), True),  # never anything else
        ((), (), True),  # nobody logged it
    ],
)
def test_a_last_save_after_a_step_at_no_rate(rates: tuple[float, ...], steps: tuple[int, ...], fires: bool) -> None:  # noqa: FBT001
    rows = [row(step, learning_rate=rate) for step, rate in zip(steps, rates, strict=True)]
    early, late = [one for one in rows if one.step <= 1000], [one for one in rows if one.step > 1000]
    run = Watched(RULE).feed(
        a_checkpoint(900, MOVED), *early, a_checkpoint(1000, SAME), *late, a_checkpoint(1001, SAME)
    )
    assert bool(run.changes) is fires
    if not fires:
        assert "a learning rate close to 0" in run.blind_reason


DEAD = {"reward_zero_std_ratio": 1.0, "grad_norm": 0.0}
ALIVE = {"reward_zero_std_ratio": 0.5, "grad_norm": 0.4}


def saved_every_other(rows: Sequence[Mapping[str, float]], kind: CheckpointKind = CheckpointKind.FULL) -> Watched:
    """Rows from step 1 on; the same weights at every second step."""
    run = Watched(RULE)
    for step, values in enumerate(rows, 1):
        run.feed(row(step, **values))
        if step % 2 == 0:
            run.feed(a_checkpoint(step, SAME, kind=kind))
    return run


@pytest.mark.parametrize("kind", [CheckpointKind.FULL, CheckpointKind.ADAPTER, CheckpointKind.PROBE])
def test_a_few_steps_without_a_signal_prove_nothing(kind: CheckpointKind) -> None:
    """No group's rewards differ: what explains the identical weights is reported by the tenth row."""
    assert saved_every_other([DEAD] * 10, kind).changes == []
    assert "no group's rewards differ" in saved_every_other([DEAD] * 10, kind).blind_reason
    run = saved_every_other([DEAD] * 12, kind)
    assert run.changes == [("firing", 12, "critical")]
    assert run.said[-1].first_step == 2


@pytest.mark.parametrize("kind", [CheckpointKind.FULL, CheckpointKind.PROBE])
def test_rewards_that_never_differ_are_no_page_for_a_broken_update(kind: CheckpointKind) -> None:
    """Whenever somebody looks, the finding is not there or the missing signal explains it; also after a good start."""
    names = [RULE, "reward-variance-collapse"]
    for start in (0, 6):
        engine = Engine("run", [SHIPPED[name] for name in names], DETECTORS)
        state = engine.state
        for step in range(1, 41):
            engine.feed(row(step, **(ALIVE if step <= start else DEAD)))
            if step % 2 == 0:
                engine.feed(a_checkpoint(step, {"w": str(min(step, start))}, kind=kind))
            found = {each.rule: each for each in diagnose(state.monitors)}
            assert RULE not in found or found[RULE].caused_by == "reward-variance-collapse", step
        assert found[RULE].fired_step == start + 10 + (2 if start == 0 else 0)


@pytest.mark.parametrize(
    "last",
    [ALIVE, {"reward_zero_std_ratio": 1.0, "grad_norm": 0.1}, {"loss": 0.1}],
    ids=["a signal", "a gradient all the same", "rows that tell nothing of it"],
)
def test_one_step_with_a_gradient_between_is_enough(last: Mapping[str, float]) -> None:
    """Weights that stand still over it are frozen, as are those of a run that logs nothing of its rewards."""
    assert saved_every_other([DEAD, DEAD, DEAD, last]).changes == [("firing", 4, "critical")]
    run = saved_every_other([DEAD] * 5 + [last])
    assert run.changes == [("firing", 6, "critical")]
    assert run.said[-1].first_step == 2


def test_two_saves_among_groups_that_happen_to_be_solved() -> None:
    """Between 4 and 6 no group of a small batch has a spread; then the weights move on."""
    run = Watched(RULE).feed(*(row(step, **ALIVE) for step in range(1, 5)), a_checkpoint(4, SAME))
    run.feed(row(5, **DEAD), row(6, **DEAD), a_checkpoint(6, SAME))
    run.feed(row(7, **ALIVE), row(8, **ALIVE), a_checkpoint(8, MOVED), row(9, **DEAD), a_checkpoint(9, MOVED))
    assert run.changes == []


def test_rows_of_an_earlier_attempt_do_not_count() -> None:
    """Steps that were trained on once are made again without a signal."""
    rows = [row(step, **ALIVE) for step in range(41, 50)]
    run = Watched(RULE).feed(a_checkpoint(40, SAME), *rows)
    run.feed(*(row(step, attempt=2, **DEAD) for step in range(41, 45)), a_checkpoint(44, SAME))
    assert run.changes == []


def test_many_steps_without_a_rate_are_reported() -> None:
    """A scheduler that ended early freezes the rest of the run."""
    rows = [row(step, learning_rate=1e-6 if step <= 20 else 0.0) for step in range(1, 41)]
    run = Watched(RULE).feed(*rows[:20], a_checkpoint(20, SAME), *rows[20:], a_checkpoint(40, SAME))
    assert run.changes == [("firing", 40, "critical")]


FIXED, MASTERS = ((-6, 4_000_000, 0),), ((-6, 4_000_000, 20_000),)
"""Weights from 0.0156 to 0.0312, whose neighbours in bf16 lie 2**-13 = 1.2e-4 apart."""


def rounded(
    counts: tuple[tuple[int, int, int], ...],
    *,
    rate: float = 1e-6,
    norm: float = 0.5,
    steps: int = 100,
    dtype: str = "BF16",
) -> Watched:
    """Two checkpoints with so many optimizer steps between them; 10,000 x 10,000 weights."""
    size = {"w": TensorDigest(dtype, (10_000, 10_000), "1")}
    movement = Movement(dtype, 8, counts) if counts else None
    first = replace(a_checkpoint(10, {}), tensors=size)
    second = replace(a_checkpoint(10 + steps, {}), tensors={"w": replace(size["w"], checksum="2")}, movement=movement)
    rows = [row(10 + n, learning_rate=rate, grad_norm=norm) for n in range(1, steps + 1)]
    return Watched(RULE).feed(first, *rows, second)


def test_updates_that_round_away() -> None:
    """100 updates of 1e-6: chance carries a weight 1e-5; a tenth of that changes 4e6 * 1e-6 / 2**-13 = 32,768."""
    run = rounded(FIXED)
    assert run.changes == [("firing", 110, "warning")]
    assert run.headline == "Updates are lost in rounding"
    said = run.said[-1].reading
    assert said.message.startswith(
        "updates of 1e-06 are lost in bf16 rounding (resolution 1e-04 near 0.02): of 4,000,000 "
    )
    assert said.evidence["beyond_expected"] == pytest.approx(32_768)
    assert said.first_step == 10


@pytest.mark.parametrize(
    "case",
    [
        {"counts": MASTERS},  # a float32 copy collects them
        {"counts": FIXED, "steps": 10},  # too few steps: copies start on bf16's own values
        {"counts": FIXED, "rate": 1e-9},  # early in a warm-up: 33 expected
        {"counts": FIXED, "rate": 1e-3},  # one update moves them
        {"counts": FIXED, "norm": 1e-4},  # 1e-8 per weight, Adam's eps
        {"counts": FIXED, "norm": 0.0},  # no signal
        {"counts": ()},  # float32, or rotated away
    ],
)
def test_what_looks_like_rounding(case: dict[str, Any]) -> None:
    assert rounded(**case).changes == []


def test_steps_without_a_gradient_are_not_counted() -> None:
    """Of 100 steps 85 had none: 15 are too few."""
    size = {"w": TensorDigest("BF16", (10_000, 10_000), "1")}
    first = replace(a_checkpoint(10, {}), tensors=size)
    second = replace(
        a_checkpoint(110, {}), tensors={"w": replace(size["w"], checksum="2")}, movement=Movement("BF16", 8, FIXED)
    )
    rows = [row(10 + n, learning_rate=1e-6, grad_norm=0.5 if n % 7 == 0 else 0.0) for n in range(1, 101)]
    assert Watched(RULE).feed(first, *rows, second).changes == []


def probed(step: int, tensors: dict[str, str]) -> CheckpointDigest:
    return a_checkpoint(step, tensors, kind=CheckpointKind.PROBE)


def test_the_first_identical_pair_of_probes_fires() -> None:
    """Updates stop after step 20; ten steps later it is reported, and where the evidence comes from."""
    run = fed(probed(1, SAME), probed(10, {"a.w": "2"}), probed(20, {"a.w": "3"}), probed(30, {"a.w": "3"}))
    assert run.changes == [("firing", 30, "critical")]
    assert (run.said[-1].first_step, run.said[-1].reading.evidence["from"]) == (20, "the callback's probe")
    assert run.feed(probed(40, {"a.w": "4"})).changes[-1] == ("resolved", 40, "critical")


def test_a_model_of_which_nothing_is_trained_is_reported_to_be_one() -> None:
    """Two probes are there; that they are compared with nothing has another reason."""
    run = fed(probed(1, {}), probed(10, {}))
    assert run.blind_reason == ("the callback finds no trainable parameter: requires_grad is off for the whole model")


def test_probes_that_lie_close_must_span_a_few_steps() -> None:
    """A loss scaler that overflows skips a step or two."""
    run = fed(*(probed(step, SAME) for step in range(10, 15)))
    assert run.changes == []
    assert run.feed(probed(15, SAME)).changes == [("firing", 15, "critical")]
    assert run.said[-1].first_step == 10


def test_checkpoints_and_probes_make_one_finding() -> None:
    """The probe is first; a checkpoint pair that spans the standstill's beginning differs and does not end it."""
    run = fed(a_checkpoint(20, SAME), probed(20, {"p": "1"}), probed(30, {"p": "2"}), probed(40, {"p": "2"}))
    run.feed(a_checkpoint(40, MOVED), probed(50, {"p": "2"}), probed(60, {"p": "2"}), a_checkpoint(60, MOVED))
    assert run.changes == [("firing", 40, "critical")]
    run.feed(probed(70, {"p": "3"}))
    assert run.changes[-1] == ("resolved", 70, "critical")
    assert len(run.changes) == 2


def test_weights_that_move_in_memory_and_not_on_the_disk() -> None:
    """What is saved is not what is trained: another key, which the probe does not clear."""
    run = fed(a_checkpoint(20, SAME), probed(20, {"p": "1"}), probed(30, {"p": "2"}), a_checkpoint(40, SAME))
    assert run.changes == [("firing", 40, "critical")]
    assert "the saved model is not the one being trained" in run.said[-1].reading.message
    assert run.headline == "The saved model is not the one being trained"
    run.feed(probed(40, {"p": "3"}))
    assert len(run.changes) == 1
    assert run.feed(a_checkpoint(60, MOVED)).changes[-1] == ("resolved", 60, "critical")


@pytest.mark.parametrize(
    ("kl", "wrong_model"),
    [
        ([0.02 * step for step in range(1, 31)], True),
        ([0.1 + 0.05 * (step % 3) for step in range(1, 31)], False),  # frozen midway: prompts differ, nothing grows
        ([1e-5 * step for step in range(1, 31)], False),  # kernels alone give as much
        ([0.02, 0.5, 0.9], False),  # too few rows
    ],
)
def test_a_kl_that_grows_between_identical_checkpoints(kl: list[float], *, wrong_model: bool) -> None:
    """The policy moves, what is saved does not: the optimizer is not to blame."""
    run = fed(a_checkpoint(1, SAME))
    run.feed(*(row(step, kl_reference=value) for step, value in enumerate(kl, 2)), a_checkpoint(40, SAME))
    assert run.changes == [("firing", 40, "critical")]
    assert ("the saved model is not the one being trained" in run.said[-1].reading.message) == wrong_model


def test_a_wrong_save_stays_one_finding_until_checkpoints_change() -> None:
    """KL grows between the first two checkpoints and then lies flat: the saved model is still not the trained one."""
    rising = [row(step, kl_reference=0.02 * step) for step in range(2, 40)]
    flat = [row(step, kl_reference=0.8) for step in range(40, 400)]
    run = fed(a_checkpoint(1, SAME)).feed(*rising, a_checkpoint(40, SAME))
    run.feed(*flat, a_checkpoint(400, SAME), a_checkpoint(420, SAME))
    assert run.changes == [("firing", 40, "critical")]
    assert run.feed(a_checkpoint(440, MOVED)).changes[-1] == ("resolved", 440, "critical")


def test_a_policy_that_moved_before_does_not_blame_the_optimizer() -> None:
    """The first checkpoint that is left is of step 40, where KL was 0.6 already."""
    rows = [row(step, kl_reference=0.6) for step in range(2, 51)]
    run = fed(*rows[:39]).feed(a_checkpoint(40, SAME), *rows[39:], a_checkpoint(50, SAME))
    message = run.said[-1].reading.message
    assert message.endswith("by its KL the policy moved before, so updates have stopped, or another copy is saved")
    causes = likely(UPDATES, run.state, message)
    assert not any("does not hold" in cause for cause in causes)
    assert any("does not hold" in cause for cause in likely(UPDATES, run.state, "all tensors are byte-identical"))


def test_a_probe_that_sees_another_model_is_not_believed() -> None:
    """The checkpoints of the same stretch differ: the finding ends, and why is reported."""
    run = fed(probed(10, SAME), probed(20, SAME), a_checkpoint(20, SAME), a_checkpoint(40, MOVED), probed(40, SAME))
    assert run.changes == [("firing", 20, "critical"), ("resolved", 40, "critical")]
    assert "another model" in run.monitor.reason


def test_frozen_parameters_in_memory_are_another_rules_matter() -> None:
    assert fed(*(a_checkpoint(step, SAME, kind=CheckpointKind.FROZEN) for step in (10, 20, 30))).changes == []
