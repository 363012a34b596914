"""slime's two names of a rollout's lengths and cut-off share."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import ChannelKind, RawRow, RunConfig
from grpo_watch.frameworks.framework_tables import recognise
from grpo_watch.frameworks.resolver import Resolver
from grpo_watch.frameworks.slime.console import SlimeLines
from grpo_watch.sources.settings.printed_config import printed_sizes


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("rollout/response_len/mean", "completion_length_mean"),
        ("rollout/response_lengths", "completion_length_mean"),
        ("rollout/truncated_ratio", "completion_truncated_ratio"),
        ("rollout/truncated", "completion_truncated_ratio"),
        ("rollout/total_lengths", None),
    ],
)
def test_what_a_key_means(key: str, metric: str | None) -> None:
    table = recognise(frozenset({"rollout/raw_reward", key}))

    assert table is not None
    assert table.name == "slime"
    found = table.find(key)
    assert (found[1].metric if found is not None else None) == metric


ROLLOUT = (
    b"[2026-02-03 10:00:02] perf 0: {'rollout/response_len/mean': 290, 'rollout/truncated_ratio': 0.0, "
    b"'rollout/zero_std/count_0.0': 2, 'rollout/zero_std/count_1.0': 3, 'rollout/repetition_frac': 0.0156}"
)
NONE_DEAD = b"rollout_metrics.py:268 - perf 1: {'rollout/response_len/mean': 290, 'rollout/truncated_ratio': 0.0}"
STEP = b"[2026-02-03 10:00:20] model.py:630 - step %d: {'train/pg_loss': 0.0, 'train/grad_norm': 0.8}"


def resolved(*lines: bytes) -> list[float | None]:
    """The share of groups without a spread, as the rules see it, of each row."""
    reader, resolver = SlimeLines(), Resolver()
    printed = printed_sizes(b"  rollout_batch_size .............................. 8")
    assert printed is not None
    resolver.set_config(RunConfig(None, None, printed, precedence=1))
    rows = [row for line in lines for row in reader.read_line(line)]
    raws = [RawRow("log", ChannelKind.CONSOLE, row.step, row.values) for row in rows]
    return [resolver.resolve(raw).values.get("reward_zero_std_ratio") for raw in raws]


def test_groups_without_a_spread_are_a_share_of_the_prompts() -> None:
    """Five of eight prompts; where slime names none, none; a step without a rollout of its own says nothing."""
    assert resolved(ROLLOUT, STEP % 0, NONE_DEAD, STEP % 1, STEP % 2) == [0.625, 0.0, None]


def test_without_the_number_of_prompts_it_is_no_share() -> None:
    (row,) = [row for line in (ROLLOUT, STEP % 0) for row in SlimeLines().read_line(line)][-1:]
    values = {**row.values, "rollout/zero_std/groups": 5.0}
    found = Resolver().resolve(RawRow("log", ChannelKind.CONSOLE, 0, values))
    assert "reward_zero_std_ratio" not in found.values


MEMORY = b"memory_utils.py:47 - [Rank %d] Memory-Usage %s model: {'gpu': '%d', 'total_GB': 79.1, 'used_GB': %s}"
TURNS = (
    b"train_metric_utils.py:140 - multi_turn 0: {'multi_turn/raw_response_length/response_length_mean': 310.0, "
    b"'multi_turn/multi_turn_metric/round_number_mean': 3.5}"
)


def test_turns_and_the_memory_of_the_fullest_device_belong_to_the_rollout_s_row() -> None:
    reader = SlimeLines()
    lines = [
        MEMORY % (0, b"after wake_up", 0, b"70.0"),
        ROLLOUT,
        MEMORY % (0, b"before wake_up", 0, b"60.5"),
        MEMORY % (0, b"after wake_up", 0, b"40.5"),
        MEMORY % (1, b"after wake_up", 1, b"42.25"),
        MEMORY % (2, b"after wake_up", 2, b"41.0"),
        TURNS,
        STEP % 0,
        STEP % 1,
    ]
    first, second = [row for line in lines for row in reader.read_line(line)]
    found = Resolver().resolve(RawRow("log", ChannelKind.CONSOLE, 0, first.values)).values
    assert (found["memory_gib"], found["turns_mean"]) == (42.25, 3.5)
    assert "memory/used_GB" not in second.values
