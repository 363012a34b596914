"""The examples of messages in docs/notifications.md: one frozen run's alert, as each service gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from grpo_watch.engine.diagnosis import Finding, Waste
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.notify.message_text import annotations_of, labels_of, moment
from grpo_watch.notify.receivers.group_robots import DingTalk, Feishu, WeCom
from grpo_watch.notify.receivers.slack import SlackReceiver
from grpo_watch.report.view import in_short
from grpo_watch.report.words import sentence_words
from grpo_watch.rules.packs import load_rules
from grpo_watch.store.messages import RESOLVED, Notification

RULE = "kl-stuck-at-zero"
CAUSE = "The optimizer does not hold the model's parameters: count those in optimizer.param_groups."
BEGAN = 1_795_000_000.0
"""18 November 2026, 11:06:40 UTC."""


def examples() -> str:
    """The part of the page, in Markdown."""
    written = ((title, json.dumps(body, ensure_ascii=False, indent=1)) for title, body in _bodies())
    return "".join(f"\n{title}:\n\n```json\n{body}\n```\n" for title, body in written) + "\n"


def alert(language: str = "en") -> Notification:
    """The alert of a run that learns nothing since step 3, of 60 on 8 GPUs."""
    rule = next(rule for rule in load_rules(language=language) if rule.name == RULE)
    evidence = {"kl_reference": 0.0, "reward_zero_std_ratio": 0.125, "grad_norm": 3.53}
    message = rule.says("KL to the reference is exactly 0 although 87% of the groups have differing rewards")
    return Notification(
        id="9f3c2b7e0d1a4c5e8f60718293a4b5c6",
        status="firing",
        run="exp7/output",
        attempt=1,
        rule=RULE,
        key="",
        severity="critical",
        step=11,
        first_step=3,
        max_steps=60,
        summary=rule.summary,
        message=message,
        evidence=evidence,
        hint=rule.advice("trl"),
        cause=sentence_words(language, CAUSE),
        caused_by=None,
        started=BEGAN,
        ended=None,
        at=BEGAN,
        page="https://gpu7:9853/#/run/exp7~output",
        runbook=f"grpo-watch explain {RULE}",
        series={"kl_reference": (0.0,) * 8, "reward_mean": (0.41, 0.44, 0.39, 0.45, 0.43, 0.4, 0.46, 0.42)},
        headline=in_short(_finding(rule), language),
        language=language,
    )


def _finding(rule: Rule) -> Finding:
    lost = Waste(8, 0.2, 1.6)
    return Finding(RULE, "", Severity.CRITICAL, 1, 3, 11, None, {}, "", "", wasted=lost, headline=rule.headline)


def _bodies() -> Iterator[tuple[str, dict[str, Any] | list[dict[str, Any]]]]:
    english, chinese = alert(), alert("zh")
    over = replace(english, status=RESOLVED, step=40, why="It lasted 37 steps. Now: reference KL 0 → 0.013.")
    yield "Slack", SlackReceiver.payload(english)
    yield "Slack, when it is over", SlackReceiver.payload(over)
    for kind, name in ((Feishu, "Feishu"), (DingTalk, "DingTalk"), (WeCom, "WeCom")):
        yield f"{name}, with `language: zh`", kind.payload(chinese)
    labels, notes = labels_of(english), annotations_of(english)
    alerting = {"labels": labels, "annotations": notes, "startsAt": moment(BEGAN), "generatorURL": english.page}
    yield "Alertmanager", [alerting]
