"""The data files of the frameworks are complete and unambiguous."""

from __future__ import annotations

import pytest

from grpo_watch.detectors.shared.batch_plan import release
from grpo_watch.engine.metric_names import LABELLED, METRICS, SETTINGS
from grpo_watch.frameworks.framework import SettingTerms
from grpo_watch.frameworks.framework_tables import frameworks, recognise


def test_every_metric_of_every_file_is_canonical() -> None:
    """A typo in a data file fails here, not in a run."""
    tables = frameworks()
    assert {"trl", "ms-swift", "unsloth"} <= tables.keys()
    for table in tables.values():
        for _, rule in [*table.exact.values(), *table.patterns]:
            assert rule.metric is None or rule.metric in METRICS
            assert (rule.metric in LABELLED) <= (rule.pattern or rule.function is not None)
            assert rule.not_with is None or rule.not_with in SETTINGS
        assert {terms.means for terms in table.settings.values()} <= SETTINGS.keys()


def test_the_longer_pattern_is_tried_first() -> None:
    """rewards/f/mean is f's mean, not the mean of a function called f/mean."""
    found = frameworks()["trl"].find("rewards/f/mean")
    assert found is not None
    assert (found[1].metric, found[2]) == ("reward_function_mean", "f")


def test_derived_frameworks_know_the_keys_of_their_base() -> None:
    """Unsloth's file lists what differs from TRL only."""
    found = frameworks()["unsloth"].find("completions/clipped_ratio")
    assert found is not None
    assert found[1].metric == "completion_truncated_ratio"


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"loss", "grad_norm"}, None),
        ({"loss", "reward", "completions/mean_length", "num_tokens"}, "trl"),
        ({"loss", "reward", "completions/mean_length"}, "ms-swift"),
        ({"loss", "consumed samples", "grad norm"}, "ms-swift"),
        ({"completion_length", "completions/mean_length"}, "unsloth"),
        ({"ppl", "memory/max_active (GiB)", "completions/mean_length", "num_tokens"}, "axolotl"),
    ],
)
def test_recognition(keys: set[str], name: str | None) -> None:
    """A row without a generation says nothing; otherwise the keys name the framework."""
    found = recognise(frozenset(keys))
    assert (found.name if found else None) == name


def test_versions_compare_as_numbers() -> None:
    """0.9 is older than 0.27; suffixes don't count; nonsense is no version."""
    assert release("0.9.0") < release("0.27.0.dev0") < release("v1.16.0")
    assert release("main") == ()


@pytest.mark.parametrize(
    ("terms", "value", "leaves", "read"),
    [
        (SettingTerms(means="adapter", convert="positive"), 0, {}, False),  # a LoRA rank of 0 is no adapter
        (SettingTerms(means="adapter", convert="positive"), 1, {}, True),
        (SettingTerms(means="beta", times="n"), 8, {"n": 4}, 32),
        (SettingTerms(means="beta", times="n"), 8, {}, None),
        (SettingTerms(means="beta", when="on", otherwise=0.0), 0.1, {"on": True}, 0.1),
        (SettingTerms(means="beta", when="on", otherwise=0.0), 0.1, {"on": False}, 0.0),
        (SettingTerms(means="beta", when="on", otherwise=0.0), 0.1, {}, None),
        (SettingTerms(means="beta"), 0.1, {}, 0.1),
    ],
)
def test_terms_of_a_setting(terms: SettingTerms, value: object, leaves: dict[str, object], read: object) -> None:
    """What is absent says nothing: it is not the value under the other terms."""
    assert terms.read(value, leaves) == read
    assert (terms.read(value, leaves) is None) == (read is None)


def test_rows_of_the_async_trainer_are_no_other_s_whether_or_not_weights_were_synced() -> None:
    """TRL 1.16 renamed the keys that it was known by; its ``kl`` is to the sampling policy."""
    row = {"completions/mean_length", "reward", "reward_std", "loss", "kl", "ratio", "perf/fwd_bwd_s"}
    for more in ({"perf/weight_sync_s", "sample/staleness_mean"}, set[str]()):
        found = recognise(frozenset(row | more))
        assert found is not None
        assert found.name == "trl-async"
