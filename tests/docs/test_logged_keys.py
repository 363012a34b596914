"""What ``make frameworks-new`` finds in a framework's source."""

from __future__ import annotations

import pytest

from grpo_watch.frameworks.framework_tables import frameworks
from scripts.logged_keys import keys_in, unknown

SOURCE = """
metrics["critic/score/mean"] = 1.0
self._metrics[mode]["kl"].append(kl)
metrics[f"gdpo/{key}/mean"] = 1.0
metrics.update({"separate_async/switch/idle": 1})
log_dict = {"loss": 0.1, f"rewards/{name}": 2}
config["learning_rate"] = 1
names = {"a/b": 1}
"""


def test_keys_with_their_lines() -> None:
    assert sorted(set(keys_in(SOURCE)), key=lambda found: (found[1], found[0])) == [
        ("critic/score/mean", 2),
        ("kl", 3),
        ("gdpo/<name>/mean", 4),
        ("separate_async/switch/idle", 5),
        ("loss", 6),
        ("rewards/<name>", 6),
        ("a/b", 8),
    ]


@pytest.mark.parametrize(
    ("key", "name", "new"),
    [
        ("critic/score/mean", "verl", False),
        ("gdpo/<name>/mean", "verl", False),
        ("val-core/<name>/acc/mean@1", "verl", False),
        ("rollout_is_mean", "verl", False),
        ("brand_new/thing", "verl", True),
        ("reward_std", "trl", False),
        ("perf/weight_sync_s", "trl-async", False),
        ("perf/weight_sync_s", "trl", True),
    ],
)
def test_whether_a_table_knows_a_key(key: str, name: str, new: bool) -> None:  # noqa: FBT001
    assert unknown(key, frameworks()[name]) is new
