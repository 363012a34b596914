"""Rows of real runs (TRL 0.24.0 and 1.16.0, ms-swift 3.12.6 and 4.6.0) in canonical names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.metric_names import MAX_FUNCTIONS, METRICS, split_label
from grpo_watch.engine.records import ChannelKind, RawRow, RunConfig, Setting, Stream
from grpo_watch.frameworks.resolver import Resolved, Resolver

ROWS = Path(__file__).parent / "rows"


def raw(values: dict[str, object], step: int | None = None, channel: str = "c", **more: object) -> RawRow:
    """A raw row as a source makes it: numbers in values, texts beside."""
    numbers = {key: value for key, value in values.items() if not isinstance(value, str) and key != "step"}
    text = {key: value for key, value in values.items() if isinstance(value, str)}
    if step is None:
        shown = values.get("step", str(values.get("global_step/max_steps", "0/0")).split("/")[0])
        step = int(str(shown))
    return RawRow(channel, ChannelKind.JSONL, step, numbers, text=text, **more)  # type: ignore[arg-type]


def rows(name: str) -> Iterator[RawRow]:
    for line in (ROWS / f"{name}.jsonl").read_text("utf-8").splitlines():
        yield raw(json.loads(line))


def resolved(name: str, resolver: Resolver | None = None) -> list[Resolved]:
    resolver = resolver or Resolver()
    return [resolver.resolve(row) for row in rows(name)]


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("trl-0.24.0", "trl"),
        ("trl-1.16.0", "trl"),
        ("trl-1.16.0-reuse", "trl"),
        ("ms-swift-4.6.0-state", "ms-swift"),
        ("ms-swift-4.6.0-warmup", "ms-swift"),
        ("ms-swift-4.6.0-reuse", "ms-swift"),
        ("ms-swift-3.12.6", "ms-swift"),
    ],
)
def test_framework_is_recognised_and_no_key_is_unknown(name: str, framework: str) -> None:
    """Nobody said which framework it is; the keys do, in every file that the framework writes."""
    resolver = Resolver()
    configs = [row.config for row in resolved(name, resolver) if row.config is not None]
    assert resolver.framework == framework
    assert resolver.unknown_keys == ()
    assert [(config.framework, config.settings["kl_implies_beta"].value) for config in configs] == [(framework, True)]


def test_values_of_a_trl_row() -> None:
    """Spot checks against the file's first line."""
    values = resolved("trl-1.16.0")[0].values
    assert values["reward_mean"] == 0.4977083206176758
    assert values["reward_function_std[target_reward]"] == 0.199576273560524
    assert values["step_seconds"] == 0.31733155500000976
    assert values["kl_reference"] == 0.0
    assert values["learning_rate"] == 0.0003
    assert {split_label(metric)[0] for metric in values} <= METRICS.keys()


@pytest.mark.parametrize("keys", [("reward", "rollout/reward_mean"), ("rollout/reward_mean", "reward")], ids=str)
def test_of_two_keys_of_one_metric_the_first_of_the_file_is_read(keys: tuple[str, str]) -> None:
    """OpenRLHF's file lists `reward` first; the order in the row does not count."""
    values: dict[str, object] = {"policy_loss": 0.1, "actor_lr": 1e-6} | dict.fromkeys(keys, 0.5) | {"reward": 0.4}
    row = {key: values[key] for key in (*keys, "policy_loss", "actor_lr")}
    assert Resolver("openrlhf").resolve(raw(row, 1)).values["reward_mean"] == 0.4


def test_old_trl_logs_the_groups_spread() -> None:
    """0.24.0 has no version on the console; its first row differs from the only function's spread."""
    first = resolved("trl-0.24.0")[0].values
    assert first["reward_group_std"] == 0.21165859699249268
    assert "reward_batch_std" not in first


def test_a_share_that_was_left_out_does_not_make_an_old_trl() -> None:
    """Since 0.18 TRL logs the share of groups without spread; with newer keys but not that one, columns are missing."""
    row: dict[str, object] = {
        "reward": 0.5,
        "reward_std": 0.3,
        "loss": 0.0,
        "completions/mean_length": 20.0,
        "num_tokens": 100.0,
    }
    assert "reward_group_std" in Resolver().resolve(raw(row, 1)).values
    for newer in ("entropy", "step_time"):
        assert "reward_group_std" not in Resolver().resolve(raw({**row, newer: 0.7}, 1)).values


def test_new_trl_logs_the_batchs_spread_once_three_rows_agree() -> None:
    """1.16.0 without a version: silent on two rows, then the batch's, never the groups'."""
    found = resolved("trl-1.16.0")
    assert [row.values.get("reward_batch_std") for row in found[:3]] == [None, None, 0.19441448152065277]
    assert not any("reward_group_std" in row.values for row in found)
    assert found[0].raw["reward_std"] == 0.199576273560524


def test_a_version_settles_the_meaning_at_once() -> None:
    """The model card says 1.16.0: the first row already counts."""
    resolver = Resolver()
    resolver.set_config(RunConfig("trl", "1.16.0", {}))
    assert resolved("trl-1.16.0", resolver)[0].values["reward_batch_std"] == 0.199576273560524


@pytest.mark.parametrize(
    ("version", "meaning"),
    [
        ("0.14.0", "reward_group_std"),
        ("0.22.0", "reward_batch_std"),
        ("0.22.1", "reward_batch_std"),
        ("0.22.2", "reward_group_std"),
        ("0.26.2", "reward_group_std"),
        ("0.27.0", "reward_batch_std"),
        ("1.17.0.dev0", "reward_batch_std"),
    ],
)
def test_meaning_by_version(version: str, meaning: str) -> None:
    """The table of formats: 0.27.0 changed it, 0.22.0 and 0.22.1 had it wrong."""
    resolver = Resolver()
    resolver.set_config(RunConfig("trl", version, {}))
    values = resolver.resolve(raw({"loss": 0.1, "reward": 0.5, "reward_std": 0.25}, step=1)).values
    assert {metric: values.get(metric) for metric in ("reward_group_std", "reward_batch_std")} == {
        "reward_group_std": 0.25 if meaning == "reward_group_std" else None,
        "reward_batch_std": 0.25 if meaning == "reward_batch_std" else None,
    }


def test_a_configuration_without_a_version_takes_none_away() -> None:
    """A console that names only the framework, after the file that knew its version: old TRL logs the groups' mean."""
    resolver = Resolver()
    resolver.set_config(RunConfig("trl", "0.24.0", {}))
    resolver.set_config(RunConfig("trl", None, {}))
    first = next(rows("trl-0.24.0"))
    assert "reward_group_std" in resolver.resolve(first).values


def test_scaling_by_batch_changes_what_ms_swift_logs() -> None:
    """scale_rewards=batch: the batch's spread, in ms-swift as in TRL 0.23 to 0.26."""
    resolver = Resolver()
    resolver.set_config(RunConfig("ms-swift", "4.6.0", {"scale_rewards": Setting("batch", "args.json")}))
    first = resolved("ms-swift-4.6.0-warmup", resolver)[0].values
    assert first["reward_batch_std"] == 0.19188128
    assert "reward_group_std" not in first


def test_one_group_per_batch_is_both() -> None:
    """With as many completions per batch as per group the two meanings are the same number."""
    resolver = Resolver()
    sizes = {"generation_batch_size": Setting(8, "x"), "num_generations": Setting(8, "x")}
    resolver.set_config(RunConfig("trl", None, sizes))
    first = resolved("trl-1.16.0", resolver)[0].values
    assert first["reward_group_std"] == first["reward_batch_std"] == 0.199576273560524


def test_one_row_proves_the_batchs() -> None:
    """Two reward functions, so nothing to compare; every group is degenerate, yet the number is not 0."""
    base = {"loss": 0.0, "grad_norm": 1.0, "step_time": 1.0, "num_tokens": 9.0, "completions/mean_length": 5.0}
    base |= {"rewards/a/mean": 0.2, "rewards/a/std": 0.1, "rewards/b/mean": 0.3, "rewards/b/std": 0.1, "reward": 0.5}
    resolver = Resolver()
    before = resolver.resolve(raw(base | {"reward_std": 0.3, "frac_reward_zero_std": 0.5}, step=1)).values
    proof = resolver.resolve(raw(base | {"reward_std": 0.3, "frac_reward_zero_std": 1.0}, step=2)).values
    after = resolver.resolve(raw(base | {"reward_std": 0.4, "frac_reward_zero_std": 0.5}, step=3)).values
    assert [row.get("reward_batch_std") for row in (before, proof, after)] == [None, 0.3, 0.4]
    assert not any("reward_group_std" in row for row in (before, proof, after))


def test_a_reward_weight_is_no_evidence() -> None:
    """Weight 2 doubles reward and spread; the spread differs from the function's for that reason alone."""
    row = {"loss": 0.0, "step_time": 1.0, "num_tokens": 9.0, "completions/mean_length": 5.0, "reward": 1.0}
    row |= {"rewards/a/mean": 0.5, "rewards/a/std": 0.1, "reward_std": 0.2, "frac_reward_zero_std": 0.0}
    resolver = Resolver()
    for step in range(1, 6):
        values = resolver.resolve(raw(row, step=step)).values
        assert "reward_group_std" not in values
        assert "reward_batch_std" not in values


def test_share_of_degenerate_groups_is_corrected_for_float_noise() -> None:
    """Real row 9 of the greedy run: spread 6e-08 and a share of 0.0; every group of it was identical."""
    found = resolved("trl-1.16.0-greedy")
    assert [row.values["reward_zero_std_ratio"] for row in found[7:10]] == [0.5, 1.0, 1.0]


def test_a_coarse_channel_does_not_correct() -> None:
    """A channel that prints three decimals shows 0 for a spread of 4e-4."""
    row = raw({"reward": 0.1, "reward_std": 0.0, "frac_reward_zero_std": 0.25}, step=1, resolution=5e-4)
    assert Resolver().resolve(row).values["reward_zero_std_ratio"] == 0.25


def test_ms_swift_logs_the_next_steps_learning_rate() -> None:
    """Warm-up run: row 1 shows 8.333e-05 although 0 was applied; it is row 2's rate."""
    found = resolved("ms-swift-4.6.0-warmup")
    assert [row.values.get("learning_rate") for row in found[:3]] == [None, 8.333e-05, 0.00016667]
    assert found[0].raw["learning_rate"] == 8.333e-05


def test_learning_rate_of_windows_and_restarts() -> None:
    """Rows 5 apart: known if both ends agree, unknown where the schedule ends; a new segment starts over."""
    resolver = Resolver("ms-swift")
    logged = [
        (1, 0, 0.2),
        (5, 0, 0.1),
        (10, 0, 0.0),
        (15, 0, 0.0),
        (16, 1, 0.3),
        (17, 1, 0.2),
        (17, 1, 0.1),
        (12, 1, 0.1),
    ]
    applied = [
        resolver.resolve(raw({"loss": 0.0, "learning_rate": rate}, step=step, segment=segment)).values.get(
            "learning_rate"
        )
        for step, segment, rate in logged
    ]
    assert applied == [None, 0.2, None, 0.0, None, 0.3, None, None]


def test_speed_of_old_ms_swift_is_an_average_in_seconds() -> None:
    """3.12.6 logs seconds per iteration since the start, older ones its inverse (0.004878: 205 s); no step_time."""
    first = next(rows("ms-swift-3.12.6"))
    values = Resolver().resolve(first).values
    assert values["step_seconds_average"] == first.values["train_speed(s/it)"]
    assert "step_seconds" not in values
    older = raw({"loss": 0.0, "train_speed(iter/s)": 0.004878}, step=1)
    assert Resolver().resolve(older).values["step_seconds_average"] == pytest.approx(205.0, abs=0.01)
    stopped = raw({"loss": 0.0, "train_speed(iter/s)": 0.0}, step=1)
    assert Resolver().resolve(stopped).values["step_seconds_average"] is None


def test_evaluation_rows_are_their_own_stream() -> None:
    """The third row has eval_ keys only; its scores are what is read of it."""
    found = resolved("trl-1.16.0-eval")
    assert [row.stream for row in found] == [Stream.TRAIN, Stream.TRAIN, Stream.EVAL, Stream.TRAIN]
    assert found[2].values == {}
    assert found[2].scores["eval_score[reward]"] == found[2].raw["eval_reward"]
    assert [bool(row.scores) for row in found] == [False, False, True, False]


@pytest.mark.parametrize(
    ("keys", "stream"),
    [
        (("val-core/math/acc/mean@1", "val-aux/num_turns/min"), Stream.EVAL),
        (("validation/accuracy",), Stream.EVAL),
        (("test/env/reward/total", "epoch"), Stream.EVAL),
        (("val_loss", "val_reward"), Stream.EVAL),
        (("val-core/math/acc/mean@1", "entropy"), Stream.TRAIN),
        (("value_loss",), Stream.TRAIN),
        (("tested",), Stream.TRAIN),
        (("epoch",), Stream.TRAIN),
    ],
)
def test_a_validation_before_the_first_step_is_no_training_row(keys: tuple[str, ...], stream: Stream) -> None:
    assert Resolver().resolve(raw(dict.fromkeys(keys, 0.5), step=0)).stream is stream


def test_rows_without_a_generation_lack_the_reward() -> None:
    """Absence stays absence: steps 2 to 4 reuse the batch of step 1."""
    found = resolved("ms-swift-4.6.0-reuse")
    assert ["reward_mean" in row.values for row in found[:5]] == [True, False, False, False, True]
    assert all("kl_reference" in row.values for row in found)


def test_not_a_number_null_and_infinity_are_kept() -> None:
    """They are evidence for detectors."""
    values = Resolver().resolve(raw({"loss": math.inf, "grad_norm": math.nan, "reward": None}, step=1)).values
    assert values["loss"] == math.inf
    assert math.isnan(values["grad_norm"] or 0.0)
    assert values["reward_mean"] is None


def test_unsloth_logs_a_kl_without_proving_beta() -> None:
    """Both names of the completion length: Unsloth, whose kl is 0.0 when beta is 0. The newer name is the one taken."""
    row = {"loss": 0.0, "kl": 0.0, "completion_length": 7.0, "completions/mean_length": 8.0, "num_tokens": 3.0}
    resolver = Resolver()
    found = resolver.resolve(raw(row, step=1))
    assert resolver.framework == "unsloth"
    assert found.config is not None
    assert found.config.settings["kl_implies_beta"].value is False
    assert found.values["completion_length_mean"] == 8.0
    assert found.raw["completion_length"] == 7.0


def test_trl_before_0_16_logs_kl_always() -> None:
    """Its rows have completion_length but no clip_ratio; the rewards have no /mean."""
    row = {"loss": 0.0, "kl": 0.0, "completion_length": 232.8, "rewards/format": 1.0, "reward": 1.7, "reward_std": 0.57}
    found = Resolver().resolve(raw(row, step=1))
    assert found.config is not None
    assert found.config.settings["kl_implies_beta"].value is False
    assert found.values["reward_function_mean[format]"] == 1.0
    assert found.values["reward_group_std"] == 0.57


def test_asynchronous_trl_has_no_reference() -> None:
    """Its kl is that of the policy to the policy that generated."""
    row = {"loss": 0.0, "kl": 0.01, "weight_sync_time_s": 2.0, "reward": 1.0, "reward_std": 0.5}
    values = Resolver().resolve(raw(row, step=1)).values
    assert values["kl_policy_update"] == 0.01
    assert "kl_reference" not in values


def test_prefixed_keys_of_tensorboard_and_wandb() -> None:
    """train/kl and eval/reward are kl and reward."""
    values = Resolver().resolve(raw({"train/loss": 0.5, "train/kl": 0.1, "train/rewards/f/mean": 1.0}, step=1)).values
    assert values == {"loss": 0.5, "kl_reference": 0.1, "reward_function_mean[f]": 1.0}
    found = Resolver().resolve(raw({"eval/reward": 0.5, "epoch": 1.0}, step=1))
    assert found.stream is Stream.EVAL
    assert (found.values, found.scores) == ({}, {"eval_score[reward]": 0.5})


def test_unknown_keys_stay_and_are_reported() -> None:
    """A user's own metric is usable as a raw one."""
    resolver = Resolver()
    found = resolver.resolve(raw({"loss": 0.5, "my/metric": 3.0}, step=1))
    assert found.raw == {"loss": 0.5, "my/metric": 3.0}
    assert resolver.unknown_keys == ("my/metric",)


def test_what_is_read_beats_what_is_inferred() -> None:
    """An ms-swift args.json: rows that look like TRL's are still read as ms-swift's."""
    resolver = Resolver()
    resolver.set_config(RunConfig("ms-swift", "4.6.0", {}))
    list(map(resolver.resolve, rows("trl-1.16.0")))
    assert resolver.framework == "ms-swift"


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.booleans(), min_size=16, max_size=16))
def test_channels_do_not_disturb_each_other(turns: list[bool]) -> None:
    """Two channels of one run, interleaved in any way, give what each gives alone."""
    left, right = list(rows("trl-1.16.0-greedy"))[:8], list(rows("ms-swift-4.6.0-warmup"))[:8]
    alone = {"l": [Resolver().resolve, left], "r": [Resolver().resolve, right]}
    expected = {key: [resolve(row).values for row in given_rows] for key, (resolve, given_rows) in alone.items()}  # type: ignore[operator,union-attr]
    resolver, queues, found = Resolver(), {"l": list(left), "r": list(right)}, {"l": [], "r": []}
    for turn in [*turns, *[True] * 8, *[False] * 8]:
        key = "l" if turn else "r"
        if queues[key]:
            row = queues[key].pop(0)
            moved = RawRow(key, row.kind, row.step, row.values, text=row.text)
            found[key].append(resolver.resolve(moved).values)  # type: ignore[attr-defined]
    assert found == expected


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["loss", "kl", "reward", "reward_std", "x/y", "eval_kl", "train/kl", "[", "rewards//mean"]),
            st.none() | st.floats(),
            max_size=6,
        ),
        max_size=6,
    )
)
def test_no_row_raises_and_no_number_is_lost(found: list[dict[str, float | None]]) -> None:
    """Whatever the keys and values, each raw number is in values or in raw."""
    resolver = Resolver()
    for step, values in enumerate(found):
        row = resolver.resolve(raw(dict(values), step=step))
        kept = [repr(value) for value in (*row.values.values(), *row.raw.values())]
        assert all(repr(value) in kept for value in values.values())


@pytest.mark.parametrize("more", [{"loss": 0.1}, {"loss": 0.1, "reward_std": 0.1, "completion_length": 200.0}])
def test_a_new_name_on_every_row_is_a_reward_function_only_so_often(more: dict[str, object]) -> None:
    """A key that holds a step or an id: each name would take memory, and time on every later row. A guess is no way."""
    resolver, known = Resolver(), "reward_function_mean[task]"
    named: set[str] = set()
    for step in range(1, 2 * MAX_FUNCTIONS):
        keys = {**more, "reward": 0.5, "rewards/task/mean": step / 4, f"rewards/{step}/mean": 0.25}
        values = resolver.resolve(raw(keys, step)).values
        assert (values["reward_mean"], values[known]) == (0.5, step / 4)
        named |= {name for name in values if split_label(name)[1] is not None}
    assert named == {known, *(f"reward_function_mean[{step}]" for step in range(1, MAX_FUNCTIONS))}
    assert named <= resolver.own_keys.keys()
    assert len(resolver.own_keys) == MAX_FUNCTIONS + 1 + len(more)
    assert resolver.unknown_keys[0] == f"rewards/{MAX_FUNCTIONS}/mean"


def test_keys_whose_separators_a_table_replaced_are_the_framework_s_own() -> None:
    """Databases and writers of CSV put ``_`` for ``/``, ``@`` and ``-``; some flat names are another trainer's keys."""
    row: dict[str, float | None] = {
        "actor_pg_loss": 0.02, "actor_ppo_kl": 1e-5, "actor_pg_clipfrac": 0.001, "actor_grad_norm": 0.4,
        "actor_lr": 2e-6, "critic_score_mean": 0.3, "critic_advantages_max": 1.4, "critic_advantages_min": -1.4,
        "response_length_mean": 310.0, "response_length_clip_ratio": 0.1, "timing_s_step": 41.0,
        "val_core_sums_reward_mean_1": 0.4,
    }  # fmt: skip
    resolver = Resolver()
    got = resolver.resolve(RawRow("table", ChannelKind.JSONL, 7, row))
    assert resolver.framework == "verl"
    assert (got.stream, resolver.unknown_keys, got.config and got.config.guessed) == (Stream.TRAIN, (), None)
    assert {name: got.values[name] for name in ("reward_mean", "grad_norm", "kl_policy_update", "step_seconds")} == {
        "reward_mean": 0.3, "grad_norm": 0.4, "kl_policy_update": 1e-5, "step_seconds": 41.0
    }  # fmt: skip
    later: dict[str, float | None] = {**row, "actor_loss": 0.02}
    resolver = Resolver()
    for step, rate in ((1, 1e-6), (2, 2e-6)):  # with actor/loss the rate is the next step's
        got = resolver.resolve(RawRow("table", ChannelKind.JSONL, step, {**later, "actor_lr": rate}))
    assert got.values["learning_rate"] == 1e-6
