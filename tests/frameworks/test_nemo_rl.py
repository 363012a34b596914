"""NeMo-RL's configuration: which estimator of advantages divides by the deviation of the group."""

from __future__ import annotations

import pytest

from grpo_watch.frameworks.setting_names import canonical_settings


@pytest.mark.parametrize(
    ("estimator", "scale", "alone"),
    [
        (None, True, False),  # before there were several
        ({"name": "grpo"}, True, False),
        ({"name": "grpo", "normalize_rewards": False, "use_leave_one_out_baseline": True}, False, True),
        ({"name": "grpo", "normalize_rewards": "${grpo.normalize_rewards}"}, True, False),
        ({"name": "reinforce_plus_plus", "normalize_rewards": True, "minus_baseline": True}, "batch", None),
    ],
)
def test_how_advantages_are_scaled(estimator: dict[str, object] | None, scale: object, alone: object) -> None:
    grpo: dict[str, object] = {"normalize_rewards": True, "use_leave_one_out_baseline": False}
    if estimator is not None:
        grpo["adv_estimator"] = estimator
    found = canonical_settings({"grpo": grpo}, "nemo-rl", "config.yaml")
    got = [found[name].value if name in found else None for name in ("scale_rewards", "leave_one_out")]
    assert got == [scale, alone]
