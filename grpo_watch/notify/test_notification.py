"""Makes the notification that shows whether a receiver can be reached."""

from __future__ import annotations

from grpo_watch.notify.notification import FIRING, TEST_RULE, Notification

RUN = "notify-test"


def sample(now: float) -> Notification:
    """An alert of a run that does not exist, which its text explains, without a runbook; each second has its own id."""
    return Notification(
        id=f"notify-test-{int(now)}",
        status=FIRING,
        run=RUN,
        attempt=1,
        rule=TEST_RULE,
        key="",
        severity="info",
        step=10,
        first_step=2,
        max_steps=80,
        summary="TEST of grpo-watch: no run is affected.",
        message="TEST of grpo-watch: no run is affected.",
        evidence={"kl_reference": 0.0, "reward_zero_std_ratio": 0.125},
        hint="Nothing: this receiver gets its alerts.",
        cause="`grpo-watch notify test` sent this.",
        caused_by=None,
        started=now,
        ended=None,
        at=now,
        series={"kl_reference": (0.0,) * 8, "reward_mean": (0.1, 0.2, 0.2, 0.4, 0.5, 0.5, 0.7, 0.8)},
    )
