"""The metric of the best checkpoint, named or by default."""

from __future__ import annotations

from grpo_watch.engine.records import Severity
from tests.preflight.launches import judged, launch

CHECK = "best-model-by-loss"


def test_by_name_and_by_default() -> None:
    (found,) = judged(CHECK, launch(metric_for_best_model="eval_loss"))
    assert found.severity is Severity.WARNING
    (found,) = judged(CHECK, launch(load_best_model_at_end=True))
    assert "the default" in found.message


def test_other_metrics_and_no_best_model_are_quiet() -> None:
    assert judged(CHECK, launch()) == []
    assert judged(CHECK, launch(load_best_model_at_end=True, metric_for_best_model="eval_reward")) == []
    assert judged(CHECK, launch("ms-swift", "4.6.0", load_best_model_at_end=True)) == []  # its default is the reward
