"""Totals of steps worked by hand, printed by real runs, or asked about in issues."""

from __future__ import annotations

import pytest

from grpo_watch.frameworks.launches import Launch
from grpo_watch.preflight.assess import assess
from grpo_watch.preflight.findings import Prediction
from tests.preflight.launches import launch

GA2, SPG2 = {"gradient_accumulation_steps": 2}, {"steps_per_generation": 2}


def predicted(given: Launch) -> Prediction:
    found = assess(given).prediction
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rows", "per_device", "group", "extra", "world", "printed"),
    [
        # rows // prompts per generation x iterations x micro-steps / accumulated, over epochs
        pytest.param(64, 8, 8, {}, 1, 64, id="A: 64/1"),
        pytest.param(64, 8, 4, {}, 1, 32, id="B: 64/2"),
        pytest.param(64, 4, 8, {"gradient_accumulation_steps": 2}, 1, 64, id="C: 64/1 x 2 / 2"),
        pytest.param(64, 2, 8, {"gradient_accumulation_steps": 8}, 1, 32, id="D: 64/2 x 8 / 8"),
        pytest.param(64, 8, 8, {"num_iterations": 2}, 1, 128, id="E: 64/1 x 2"),
        pytest.param(64, 8, 8, {**GA2, "steps_per_generation": 4}, 1, 32, id="F: 64/4 x 4 / 2"),
        pytest.param(64, 6, 6, {}, 1, 64, id="G: 64/1"),
        pytest.param(64, 4, 6, {"gradient_accumulation_steps": 3}, 1, 32, id="H: 64/2 x 3 / 3"),
        pytest.param(64, 8, 4, {"gradient_accumulation_steps": 3}, 1, 10, id="I: floor(64/6) = 10"),
        pytest.param(64, 8, 8, {"gradient_accumulation_steps": 4, **SPG2}, 1, 16, id="J: 64/2 x 2 / 4"),
        pytest.param(64, 8, 8, {"gradient_accumulation_steps": 3, **SPG2}, 1, 22, id="K: ceil(64 / 3)"),
        pytest.param(64, 4, 4, {"num_train_epochs": 1.5}, 1, 96, id="L: 1.5 x 64"),
        pytest.param(64, 8, 4, {**GA2, "generation_batch_size": 32}, 1, 16, id="M: 64/8 x 4 / 2"),
        pytest.param(100, 8, 4, {}, 1, 50, id="N: 100/2"),
        pytest.param(
            50, 8, 4, {"gradient_accumulation_steps": 4, "num_iterations": 2, "num_train_epochs": 2}, 1, 24,
            id="O: floor(50/8) = 6, x 2 x 4 / 4 x 2",
        ),
        pytest.param(64, 8, 4, {}, 1, 32, id="P: 64/2, accumulation left out"),
        pytest.param(64, 4, 8, {"gradient_accumulation_steps": 2}, 2, 32, id="Q: 64/2 x 2 / 2"),
        pytest.param(58, 6, 6, {}, 1, 58, id="R: 58/1"),
        pytest.param(95, 8, 4, {}, 1, 47, id="S: floor(95/2)"),
        pytest.param(63, 8, 8, {"gradient_accumulation_steps": 2}, 1, 31, id="T: floor(63/2)"),
        pytest.param(58, 3, 6, {"gradient_accumulation_steps": 2, "num_iterations": 2}, 2, 58, id="U: 58/2 x 2"),
    ],
)  # fmt: skip
def test_totals_that_ms_swift_printed(
    rows: int, per_device: int, group: int, extra: dict[str, float], world: int, printed: int
) -> None:
    """21 runs of ms-swift 4.6.0; five of them (I, K, P, T, U) also of 3.12.6, with the same totals."""
    settings = {"num_train_epochs": 1, "per_device_train_batch_size": per_device, "num_generations": group, **extra}
    for version in ("4.6.0", "3.12.6"):
        assert predicted(launch("ms-swift", version, world, rows, eval_strategy="no", **settings)).max_steps == printed


def test_the_question_that_started_it() -> None:
    """8000 x 0.99 = 7920 prompts; 8 x 6 x 2 / 8 = 12 per generation: 660 of them, each learnt from twice."""
    found = predicted(
        launch(
            "ms-swift", "4.6.0", 6, 8000, split_dataset_ratio=0.01, num_train_epochs=1, num_generations=8,
            per_device_train_batch_size=8, per_device_eval_batch_size=4, num_iterations=2, **GA2,
        )
    )  # fmt: skip
    assert (found.max_steps, found.prompts_per_step, found.completions_per_step) == (1320, 12, 96)
    assert found.formula == (
        "ceil(1 epochs x ceil(floor(7920 prompts / 12 per generation) x 2 iterations x 2 micro-steps / 2 accumulated)) "
        "= 1320"
    )


@pytest.mark.parametrize(
    ("rows", "world", "settings", "total"),
    [
        # 8 x 6 x 2 / 24 = 4 prompts a step: 70000 / 4
        (70_000, 6, {"num_generations": 24, "per_device_train_batch_size": 8, **GA2}, 17_500),
        # one prompt a step: 128 x 3
        (128, 1, {"num_generations": 8, "per_device_train_batch_size": 8, "num_train_epochs": 3}, 384),
        # 24 / 6 = 4 prompts a step: 2000, twice
        (8_000, 1, {"num_generations": 6, "per_device_train_batch_size": 24, "num_train_epochs": 2}, 4_000),
        # 224 / 8 = 28 prompts a step: floor(5498 / 28) = 196
        (5_498, 4, {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 7}, 196),
        # 128 / 8 = 16 prompts a step: 375, twice
        (6_000, 8, {"num_generations": 8, "per_device_train_batch_size": 16, "num_iterations": 2}, 750),
        # 4 x 2 / 4 = 2 prompts a step: 13
        (26, 1, {"num_generations": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 13),
        # 4 prompts a generation: 6 of them, 4 micro-steps each, 2 accumulated
        (
            26, 1,
            {
                "num_generations": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
                "steps_per_generation": 4,
            },
            12,
        ),
    ],
)  # fmt: skip
def test_totals_of_trl(rows: int, world: int, settings: dict[str, int], total: int) -> None:
    assert predicted(launch("trl", "1.16.0", world, rows, **{"num_train_epochs": 1, **settings})).max_steps == total


def test_the_old_and_the_new_rounding_differ_by_one() -> None:
    """7136 rows less 71 for evaluation are 7065 prompts, 2 or 16 to a step: 3532.5 and 441.6 steps.

    Today the sampler drops the incomplete batch: 3532 and 441. TRL 0.18 and 0.19 count it, and transformers >= 4.52
    rounds up: 3533 and 442; with transformers <= 4.51 it is rounded down: 3532 and 441. So the 3533 that was reported
    for a batch of 1 is the old rounding up, the 441 for a batch of 8 the new one (or the old one down).
    """
    totals = {
        (version, transformers, per_device): predicted(
            launch(
                "trl", version, 2, 7065, num_train_epochs=1, num_generations=8, gradient_accumulation_steps=8,
                per_device_train_batch_size=per_device, transformers_version=transformers,
            )
        ).max_steps
        for version, transformers in (("0.20.0", "4.53.3"), ("0.19.1", "4.53.3"), ("0.19.1", "4.51.3"))
        for per_device in (1, 8)
    }  # fmt: skip
    assert list(totals.values()) == [3532, 441, 3533, 442, 3532, 441]


def test_trl_0_14_counts_prompts() -> None:
    """100 prompts, 1 per device and 8 accumulated by default: floor(100 / 8) = 12 steps of 8 prompts."""
    found = predicted(launch("trl", "0.14.0", 1, 100, num_train_epochs=1))
    assert (found.max_steps, found.completions_per_step, found.prompts_per_step) == (12, 64, 8)


def test_a_bar_that_promises_too_much() -> None:
    """TRL 0.19, 26 prompts on 2 processes: 104 / 8 = 13 micro-steps are counted, 12 drawn; 2 make a step."""
    found = predicted(
        launch(
            "trl",
            "0.19.1",
            2,
            26,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_generations=4,
        )
    )
    assert found.max_steps == 7
    assert "the bar says 7, the run ends at about 6" in found.notes[0]


def test_verl() -> None:
    """floor(7473 / 1024) = 7 steps, 15 epochs; mini-batches of 256 make 4 optimizer steps each."""
    found = predicted(
        launch(
            "verl", "0.9.0", None, 7473, trainer__total_epochs=15, actor_rollout_ref__rollout__n=5,
            actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=4,
            actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=4,
        )
    )  # fmt: skip
    assert (found.max_steps, found.steps_per_epoch, found.completions_per_step) == (105, 7, 5120)
    assert found.optimizer_steps_per_generation == 4
    assert found.formula == "floor(7473 prompts / 1024 per step) x 15 epochs = 105"


def test_openrlhf_shows_rollouts() -> None:
    """ceil(5000 / 1024) = 5 rollouts; the schedule has floor(5000 x 8 / 128) = 312 optimizer steps."""
    found = predicted(launch("openrlhf", "0.11.0", None, 5000, rollout__n_samples_per_prompt=8))
    assert (found.max_steps, found.optimizer_steps_per_generation) == (5, 64)
    assert found.notes[0].endswith("in all 312")


def test_nemo_rl() -> None:
    """floor(1000 / 32) = 31 steps, twice; at most 40."""
    assert predicted(launch("nemo-rl", "0.7.0", None, 1000, grpo__max_num_epochs=2)).max_steps == 62
    capped = launch("nemo-rl", "0.7.0", None, 1000, grpo__max_num_epochs=2, grpo__max_num_steps=40)
    assert predicted(capped).max_steps == 40


def test_megatron() -> None:
    """8 processes as 4 copies, 2 to a micro-batch: floor(1001 / 8) x 8 = 1000 prompts x 8 / 64 = 125 iterations."""
    found = predicted(
        launch(
            "ms-swift-megatron", "4.6.0", 8, 1001, global_batch_size=64, num_generations=8, micro_batch_size=2,
            tensor_model_parallel_size=2, num_train_epochs=1,
        )
    )  # fmt: skip
    assert found.max_steps == 125


def test_what_it_will_cost() -> None:
    """64 prompts x 8 completions of at most 512 tokens."""
    found = predicted(launch("ms-swift", "4.6.0", 1, 64, num_train_epochs=1, per_device_train_batch_size=8))
    assert (found.completions, found.tokens) == (512, 512 * 512)


def test_what_is_missing_is_asked_for() -> None:
    found = assess(launch(version=None, world_size=None))
    assert [line[line.index("--") :].rstrip(")") for line in found.missing if "--" in line] == [
        "--framework-version); the rules of 1.16.0, the newest known, are applied",
        "--world-size",
        "--dataset-size",
    ]
    assert found.prediction is None
    assert assess(Launch()).missing == ("the framework is not known (--framework)",)
    assert "only axolotl, " in assess(Launch("llama-factory")).missing[0]


def test_an_assumed_version_is_named_as_such() -> None:
    def missing_lines(framework: str) -> str:
        return assess(launch(framework, None, rows=100)).missing[0]

    assert "the rules of TRL 0.18.0, which open-r1 pins, are applied" in missing_lines("open-r1")
    assert "the rules of 4.6.0, the newest known, are applied" in missing_lines("ms-swift")
