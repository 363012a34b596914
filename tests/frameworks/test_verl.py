"""What verl's keys mean in each era, and the zeros that are healthy there; lines after its source, values by hand."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import ChannelKind, RawRow, RunConfig, Stream
from grpo_watch.frameworks.resolver import Resolved, Resolver
from grpo_watch.frameworks.setting_names import canonical_settings
from grpo_watch.frameworks.verl.console import VerlLines

COMMON = " - critic/score/mean:0.5 - critic/advantages/max:1.5 - critic/advantages/min:-1.5 - actor/pg_loss:0.01"


def resolve(*lines: str) -> list[Resolved]:
    resolver = Resolver()
    found = []
    for line in lines:
        (row,) = VerlLines().read_line(line.encode())
        raw = RawRow("log", ChannelKind.CONSOLE, row.step, row.values, row.stream, resolution=row.resolution)
        found.append(resolver.resolve(raw))
    assert resolver.framework == "verl"
    assert resolver.unknown_keys == ()
    return found


def values(line: str) -> dict[str, float | None]:
    return resolve(line)[0].values


def test_the_three_kl_stay_three() -> None:
    got = values(
        f"step:2{COMMON} - actor/kl_loss:0.002 - actor/kl_coef:0.001 - actor/ppo_kl:-1e-05 - rollout_corr/k3_kl:0.0008"
        " - training/rollout_probs_diff_mean:0.003 - rollout_corr/kl:-0.004"
    )
    assert got["kl_reference"] == 0.002
    assert got["kl_policy_update"] == -1e-05
    assert got["kl_rollout"] == 0.0008
    assert got["probability_gap_rollout"] == 0.003


@pytest.mark.parametrize("bypass", [True, False])
def test_with_the_engine_s_log_probabilities_as_the_old_policy_s_there_is_no_kl_to_it(*, bypass: bool) -> None:
    """``bypass_mode``: ppo_kl then compares the trainer with the engine; it stays usable as ``raw:actor/ppo_kl``."""
    (line,) = VerlLines().read_line(f"step:2{COMMON} - actor/ppo_kl:-0.004".encode())
    config = {"algorithm": {"rollout_correction": {"bypass_mode": bypass}}}
    resolver = Resolver()
    for said in (None, canonical_settings(config, "verl", "log")):  # also where rows came before the configuration
        if said is not None:
            resolver.set_config(RunConfig("verl", None, said, "log", precedence=1))
        got = resolver.resolve(RawRow("log", ChannelKind.CONSOLE, 2, line.values))
    assert ("kl_policy_update" in got.values, got.raw["actor/ppo_kl"]) == (not bypass, -0.004)


def test_the_placeholder_of_a_run_without_reference_is_no_kl() -> None:
    """0.7.0 and 0.7.1 write actor/kl_loss:0.0 in every row; only actor/kl_coef tells that there is a reference."""
    assert "kl_reference" not in values(f"step:2{COMMON} - actor/kl_loss:0.0 - actor/ppo_kl:0.0")


def test_a_kl_inside_the_reward_is_one_to_the_reference() -> None:
    assert values(f"step:2{COMMON} - actor/reward_kl_penalty:-0.001")["kl_reference"] == -0.001


def test_reward_is_the_score_and_not_what_the_kl_left_of_it() -> None:
    assert values(f"step:2{COMMON} - critic/rewards/mean:0.41")["reward_mean"] == 0.5


def test_validation_in_a_training_row_does_not_make_it_evaluation() -> None:
    both, alone = resolve(f"step:5{COMMON} - val-core/gsm8k/acc/mean@1:0.5", "step:5 - val-core/gsm8k/acc/mean@1:0.5")
    assert (both.stream, alone.stream) == (Stream.TRAIN, Stream.EVAL)
    assert both.values["reward_mean"] == 0.5
    assert both.scores == alone.scores == {"eval_score[gsm8k/acc/mean@1]": 0.5}


def test_a_row_without_update_while_the_critic_warms_up() -> None:
    (row,) = resolve(
        "step:1 - critic/score/mean:0.5 - critic/advantages/max:1.0 - critic/vf_loss:0.2 - critic/lr:1e-05"
    )
    assert row.stream is Stream.TRAIN
    assert row.values == {"reward_mean": 0.5, "advantage_max": 1.0}


def test_the_rate_is_the_one_that_was_used() -> None:
    """Up to 0.7 as logged; from 0.8 on (actor/loss) the next row's."""
    old = resolve(f"step:1{COMMON} - actor/lr:0.0", f"step:2{COMMON} - actor/lr:1e-07")
    assert [row.values["learning_rate"] for row in old] == [0.0, 1e-07]
    new = resolve(*(f"step:{n}{COMMON} - actor/loss:0.01 - actor/lr:{n}e-07" for n in (1, 2)))
    assert [row.values.get("learning_rate") for row in new] == [None, 1e-07]


@pytest.mark.parametrize(
    ("share", "longest", "known"),
    [
        (0.703125, 1024.0, True),  # 45 of 64 responses end at the limit (a public run of 125 steps)
        (0.0625, 1024.0, False),
        (0.75, 7.0, False),  # short answers of one form
        (1.0, 213.0, False),  # copies
    ],
)
def test_the_share_of_cut_responses_in_the_new_trainer(share: float, longest: float, known: bool) -> None:  # noqa: FBT001
    """0.9 compares with the longest response of the batch: at least one always reaches it."""
    row = f"step:2{COMMON} - response_length/max:{longest} - response_length/clip_ratio:{share}"
    assert values(row)["completion_truncated_ratio"] == share
    assert values(f"{row} - training/num_turns/mean:2.0").get("completion_truncated_ratio") == (
        share if known else None
    )


def test_the_share_of_cut_prompts_is_not_known_in_the_new_trainer() -> None:
    """It pads prompts to the longest of the batch, too."""
    assert values(f"step:2{COMMON} - prompt_length/clip_ratio:0.5")["prompt_truncated_ratio"] == 0.5
    new = values(f"step:2{COMMON} - prompt_length/clip_ratio:0.5 - training/num_turns/mean:2.0")
    assert "prompt_truncated_ratio" not in new


CONFIG = {
    "actor_rollout_ref": {
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.001, "optim": {"lr": 1e-6, "lr_warmup_steps": -1}},
        "model": {"path": "Qwen/Qwen2.5-0.5B", "lora_rank": 0},
        "rollout": {"n": 5},
    },
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False, "kl_ctrl": {"kl_coef": 0.01}},
    "trainer": {"save_freq": -1, "total_epochs": 15, "total_training_steps": None},
    "data": {"max_response_length": "${oc.select:x,512}"},
}


def test_configuration() -> None:
    got = {name: setting.value for name, setting in canonical_settings(CONFIG, "verl", "log").items()}
    assert got == {
        "num_generations": 5,
        "beta": 0.001,
        "learning_rate": 1e-6,
        "adapter": False,
        "model": "Qwen/Qwen2.5-0.5B",
        "num_train_epochs": 15,
    }


def test_how_many_tools_a_turn_may_call() -> None:
    config = {"actor_rollout_ref": {"rollout": {"multi_turn": {"max_parallel_calls": 5}}}}
    got = {name: setting.value for name, setting in canonical_settings(config, "verl", "log").items()}
    assert got == {"parallel_tool_calls": 5}


def test_what_happens_to_long_prompts() -> None:
    config = {"data": {"max_prompt_length": 512, "truncation": "left", "filter_overlong_prompts": False}}
    got = {name: setting.value for name, setting in canonical_settings(config, "verl", "log").items()}
    assert got == {"max_prompt_length": 512, "prompt_truncation": "left", "prompts_filtered": False}


@pytest.mark.parametrize(
    ("loss", "reward", "beta"), [(True, False, 0.001), (False, True, 0.01), (False, False, 0.0), (True, True, 0.001)]
)
def test_which_coefficient_counts(*, loss: bool, reward: bool, beta: float) -> None:
    config = {
        "actor_rollout_ref": {"actor": {"use_kl_loss": loss, "kl_loss_coef": 0.001}},
        "algorithm": {"use_kl_in_reward": reward, "kl_ctrl": {"kl_coef": 0.01}},
    }
    assert canonical_settings(config, "verl", "log")["beta"].value == beta


def test_one_sample_per_prompt_is_right_outside_grpo() -> None:
    config = {"actor_rollout_ref": {"rollout": {"n": 1}}, "algorithm": {"adv_estimator": "gae"}}
    assert "num_generations" not in canonical_settings(config, "verl", "log")


def test_environments_that_are_repeated_are_the_group() -> None:
    """verl-agent: the engine answers each turn of each copy of an environment once."""
    config = {
        "actor_rollout_ref": {"rollout": {"n": 1}},
        "env": {"rollout": {"n": 4}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    assert canonical_settings(config, "verl", "log")["num_generations"].value == 4


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"n_gpus_per_node": 8, "nnodes": 2}, 16),
        ({"n_gpus_per_node": 1, "nnodes": 1}, 1),
        ({"n_gpus_per_node": 8}, None),
        ({"nnodes": 2}, None),
        ({"n_gpus_per_node": "${gpus}", "nnodes": 2}, None),
    ],
)
def test_processes_are_the_gpus_of_all_nodes(trainer: dict[str, object], processes: int | None) -> None:
    """A number of GPUs or nodes that is not said is not guessed; the rollouts' own pool is none of training."""
    config = {"trainer": trainer, "rollout": {"n_gpus_per_node": 4, "nnodes": 1}}
    found = canonical_settings(config, "verl", "log").get("world_size")
    assert (found.value if found is not None else None) == processes
