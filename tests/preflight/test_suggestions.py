"""Every proposed configuration is accepted by the check that refused the old one, and keeps what it claims."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.launch_rules import OwnArithmetic, batch_of, refusals, rules_of
from grpo_watch.frameworks.launches import Launch, LaunchSettings
from grpo_watch.frameworks.verl.launch import PER_GPU
from grpo_watch.preflight.assess import assess
from grpo_watch.preflight.suggest import SHOWN, suggest
from tests.preflight.launches import launch

LOG_PROBS = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
small = st.integers(1, 16)
versions = st.sampled_from(
    [("trl", v) for v in ("0.15.2", "0.17.0", "0.18.2", "0.19.1", "0.22.2", "1.16.0")]
    + [("ms-swift", v) for v in ("3.3.1", "3.6.4", "3.12.6", "4.6.0")]
    + [("axolotl", "1.8.0")]
)
batches = st.fixed_dictionaries(
    {"per_device_train_batch_size": small, "gradient_accumulation_steps": st.integers(1, 8), "num_generations": small},
    optional={
        "steps_per_generation": st.integers(1, 8),
        "generation_batch_size": st.integers(1, 256),
        "per_device_eval_batch_size": small,
        "eval_strategy": st.sampled_from(["steps", "no"]),
    },
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(versions, st.integers(1, 8), batches)
def test_suggestions_hold_what_they_promise(named: tuple[str, str], world: int, chosen: dict[str, object]) -> None:
    framework, version = named
    asked = LaunchSettings(launch(framework, version, world, None, **chosen))
    before = batch_of(asked)
    assert before is not None
    found = suggest(asked)
    assert bool(found) <= bool(refusals(before))
    assert len(found) <= SHOWN
    assert [len(each.changes) for each in found] == sorted(len(each.changes) for each in found)
    for each in found:
        after = batch_of(asked.changed(each.changes))
        assert after is not None
        assert refusals(after) == ()
        kept = {
            "memory per device": after.per_device_train_batch_size <= before.per_device_train_batch_size
            and after.per_device_eval_batch_size <= before.per_device_eval_batch_size,
            "group size": after.num_generations == before.num_generations,
            "generation batch": after.completions == before.completions,
            "completions per step": after.completions_per_step == before.completions_per_step,
        }
        assert all(kept[name] for name in each.why.partition("; keeps ")[2].split(", ") if name)
        assert all(asked.value(name) != value for name, value in each.changes.items())


@settings(max_examples=60, deadline=None)
@given(versions, st.integers(1, 8), st.integers(1, 16), st.integers(1, 8), st.integers(1, 16))
def test_there_is_a_way_out_of_every_plain_batch(
    named: tuple[str, str], world: int, per_device: int, accumulated: int, group: int
) -> None:
    """Without generation settings one or two changes are always enough."""
    framework, version = named
    asked = LaunchSettings(
        launch(
            framework, version, world, None, per_device_train_batch_size=per_device, eval_strategy="no",
            gradient_accumulation_steps=accumulated, num_generations=group,
        )
    )  # fmt: skip
    batch = batch_of(asked)
    assert batch is not None
    assert bool(suggest(asked)) == bool(refusals(batch))


def test_the_nearest_comes_first() -> None:
    """6 completions, groups of 8: 4 accumulated make 24; or groups of 6; or 8 per device, which needs more memory."""
    found = suggest(LaunchSettings(launch(per_device_train_batch_size=6)))
    assert [dict(each.changes) for each in found[:3]] == [
        {"gradient_accumulation_steps": 4},
        {"num_generations": 6},
        {"per_device_train_batch_size": 8},
    ]
    assert "memory per device" in found[0].why
    assert "memory per device" not in found[2].why


def test_names_are_the_frameworks_own() -> None:
    found = suggest(LaunchSettings(launch("axolotl", "1.8.0", micro_batch_size=6, trl__num_generations=8)))
    assert {name for each in found for name in each.changes} <= {
        "micro_batch_size",
        "gradient_accumulation_steps",
        "trl.num_generations",
    }


def test_other_frameworks_get_a_value_too() -> None:
    """A mini-batch of 256 is larger than the batch of 128."""
    asked = LaunchSettings(
        Launch(
            "verl",
            "0.9.0",
            settings={
                "data.train_batch_size": Setting(128, "x"),
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": Setting(4, "x"),
                LOG_PROBS: Setting(4, "x"),
            },
        )
    )
    found = suggest(asked)
    assert {"actor_rollout_ref.actor.ppo_mini_batch_size": 128} in [dict(each.changes) for each in found]
    for each in found:
        rules = rules_of(asked)
        assert isinstance(rules, OwnArithmetic)
        assert not any(rules.broken(asked.changed(each.changes)))


def test_a_default_is_called_a_default() -> None:
    """verl's mini-batch is 256 unless given, TRL's accumulation 1; a micro-batch has no default."""
    verl = {"data.train_batch_size": Setting(128, "x"), PER_GPU: Setting(4, "x"), LOG_PROBS: Setting(4, "x")}
    found = suggest(LaunchSettings(Launch("verl", "0.9.0", settings=verl)))
    assert "default 256 → 128 breaks no rule" in [each.why for each in found]
    found = suggest(LaunchSettings(launch(per_device_train_batch_size=6, num_generations=8)))
    assert {"gradient_accumulation_steps": "default 1"} in [dict(each.was) for each in found]
    verl = {"data.train_batch_size": Setting(256, "x"), LOG_PROBS: Setting(4, "x")}
    assert "not given → 1 breaks no rule" in [
        each.why for each in suggest(LaunchSettings(Launch("verl", "0.9.0", settings=verl)))
    ]


def test_three_changes_where_two_are_not_enough() -> None:
    """92 completions are neither whole micro-batches of 16 nor groups of 12, and one row is no group to evaluate."""
    asked = LaunchSettings(
        launch(
            per_device_train_batch_size=16, gradient_accumulation_steps=4, num_generations=12,
            generation_batch_size=92, eval_strategy="steps", per_device_eval_batch_size=1,
        )
    )  # fmt: skip
    found = suggest(asked)
    assert {len(each.changes) for each in found} == {3}
    for each in found:
        batch = batch_of(asked.changed(each.changes))
        assert batch is not None
        assert refusals(batch) == ()


def test_where_four_settings_are_wrong_nothing_near_is_found() -> None:
    """92 is neither whole micro-batches of 7 nor groups of 64, and one row is no group to evaluate: four are wrong."""
    given = launch(
        per_device_train_batch_size=7, gradient_accumulation_steps=11, num_generations=64,
        generation_batch_size=92, eval_strategy="steps", per_device_eval_batch_size=1,
    )  # fmt: skip
    assert assess(given).suggestions == ()
