"""Megatron's console lines under ms-swift 3, as documented in its issue tracker; values by hand."""

from __future__ import annotations

from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.frameworks.ms_swift.console import MegatronLines
from grpo_watch.frameworks.resolver import Resolver

LINE = (
    b" [2025-11-25 07:19:22] iteration        7/    2174 | consumed samples:          448 | elapsed time per iteration"
    b" (ms): 215613.0 | memory(GiB): 51.52 | elapsed time: 17m 33s | remaining time: 3d 18h 34m 46s | learning rate: "
    b"4.999872E-05 | global batch size:    64 | loss: -2.365559E-06 | reward: 7.617188E-01 | reward_std: 1.25E-01 | "
    b"frac_reward_zero_std: 7.187500E-01 | rewards/Format/mean: 0.000000E+00 | loss scale: 1.0 | grad norm: 0.016 | "
    b"number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def test_a_line() -> None:
    (row,) = MegatronLines().read_line(LINE)
    assert (row.step, row.max_steps) == (7, 2174)
    assert row.values["learning rate"] == 4.999872e-05
    assert row.values["elapsed_seconds"] == 17 * 60 + 33
    assert "remaining time" not in row.values


def test_its_meaning() -> None:
    (row,) = MegatronLines().read_line(LINE)
    resolver = Resolver()
    got = resolver.resolve(RawRow("log", ChannelKind.CONSOLE, row.step, row.values))
    assert resolver.framework == "ms-swift"
    assert resolver.unknown_keys == ()
    expected = {
        "reward_mean": 0.7617188,
        "reward_zero_std_ratio": 0.71875,
        "reward_group_std": 0.125,
        "loss": -2.365559e-06,
    }
    expected |= {"grad_norm": 0.016, "memory_gib": 51.52}
    assert {name: got.values[name] for name in expected} == expected


def test_numbers_that_are_none() -> None:
    (row,) = MegatronLines().read_line(b"iteration 3/ 9 | consumed samples: 4 | loss: nan | grad norm: inf |")
    assert row.values["loss"] != row.values["loss"]
    assert row.values["grad norm"] == float("inf")


def test_other_text() -> None:
    assert MegatronLines().read_line(b"say iteration 3 | consumed samples: 4") == ()
