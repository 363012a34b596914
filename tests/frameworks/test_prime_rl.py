"""The lines of prime-rl's trainer and orchestrator, which may share a console."""

from __future__ import annotations

from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.frameworks.prime_rl.console import PrimeRlLines
from grpo_watch.frameworks.resolver import Resolver

ORCHESTRATOR = (
    b"16:43:08 SUCCESS Step 5 | Time: 5.10s | Reward: 0.3438 | Throughput: 3512.0 tokens/s"
    b" | Seq. Length: 141.5 tokens/sample | Async Level: 1 | Max. Off-Policy Level: 1"
)
TRAINER = (
    b"16:43:09 SUCCESS Step 4 |    6.20s | Loss 0.0012 | Entropy 0.4100 | Mismatch KL 0.0009 | Grad. Norm 0.1200"
    b" | LR 1.00e-06 | Throughput 12345 tokens/s | MFU 31.0% | Peak Mem. 60.1 GiB"
)


def test_the_orchestrators_line_gives_reward_length_and_time() -> None:
    (row,) = PrimeRlLines().read_line(ORCHESTRATOR)
    resolver = Resolver(None)
    found = resolver.resolve(RawRow("log", ChannelKind.CONSOLE, row.step, row.values))
    assert row.step == 5
    assert resolver.framework == "prime-rl"
    assert found.values == {"reward_mean": 0.3438, "completion_length_mean": 141.5, "step_seconds": 5.1}
    assert resolver.unknown_keys == ()


def test_of_two_writers_in_one_console_the_first_is_read() -> None:
    """The orchestrator is steps ahead: rows of both would look like restarts. A new reader keeps the choice."""
    for first, second in ((ORCHESTRATOR, TRAINER), (TRAINER, ORCHESTRATOR)):
        reader = PrimeRlLines()
        assert len(reader.read_line(first)) == 1
        assert reader.read_line(second) == ()
        again = PrimeRlLines()
        again.memory = reader.memory
        assert again.read_line(second) == ()
        assert len(again.read_line(first)) == 1


def test_metrics_by_agent_are_read_by_what_they_mean() -> None:
    """Keys of the orchestrator from 2026-08 on; `rewards/<function>` is below the agent's name."""
    agent = "train/all/policy"
    resolver = Resolver(None)
    row = {
        "optim/lr": 1e-6,
        "optim/grad_norm": 0.3,
        f"{agent}/reward/mean": 0.5,
        f"{agent}/rewards/math/mean": 0.4,
        f"{agent}/rewards/math/max": 1.0,
        f"{agent}/is_truncated/mean": 0.1,
        f"{agent}/num_output_tokens/mean": 300.0,
        f"{agent}/num_turns/mean": 2.0,
        f"{agent}/has_error/mean": 0.25,
        f"{agent}/solved_some": 0.75,
        "off_policy/mean": 1.0,
    }
    found = resolver.resolve(RawRow("metrics", ChannelKind.JSONL, 2, row))
    assert found.values.keys() >= {"grad_norm"}
    assert {name: value for name, value in found.values.items() if name not in {"grad_norm", "learning_rate"}} == {
        "reward_mean": 0.5,
        "reward_function_mean[math]": 0.4,
        "completion_truncated_ratio": 0.1,
        "completion_length_mean": 300.0,
        "turns_mean": 2.0,
        "tool_failure_ratio": 0.25,
        "reward_zero_std_ratio": 0.25,
        "sample_staleness_steps": 1.0,
    }
    assert resolver.unknown_keys == ()
