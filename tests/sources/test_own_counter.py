"""A logged ``step`` that several rows share is no number of rows."""

from __future__ import annotations

from grpo_watch.sources.trackers.tracker_source import OwnCounter


def test_metrics_that_come_again_make_it_coarse() -> None:
    counter = OwnCounter()
    for step, loss in ((0, 0.1), (1, 0.2)):
        assert not counter.counts_more({"step": step}, {"loss": loss, "avg_reward": loss})
    assert counter.counts_more({"step": 1}, {"loss": 0.3, "avg_reward": 0.4})
    assert counter.counts_more({"step": 2}, {"loss": 0.3, "avg_reward": 0.4})


def test_pieces_of_one_row_do_not() -> None:
    counter = OwnCounter()
    counter.counts_more({"step": 1}, {"loss": 0.1, "avg_reward": 0.5})
    assert not counter.counts_more({"step": 1}, {"kl": 0.1, "loss": 0.1, "mystery": 4.0})
    assert not counter.counts_more({"step": 1}, {"mystery": 5.0, "other": 5.0})
    assert not counter.counts_more({}, {"loss": 0.7, "avg_reward": 0.7})
