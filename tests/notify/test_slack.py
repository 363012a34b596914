"""Slack: what a message holds, Slack's limits, and that no text of a run can mention or link anything."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.message_text import sparkline
from grpo_watch.notify.receiver import DeliveryResult, ReceiverContext, build
from grpo_watch.notify.receivers.slack import MAX_TEXT, SlackReceiver, escaped
from tests.support.receiving import Answer, a_notification, receiving, secret_file

HOSTILE = "<!channel> <@U1> <http://evil|click> &lt; \x1b[2J \u202e"


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in texts(each)]


def test_a_message_reports_what_a_person_needs() -> None:
    body = SlackReceiver.payload(a_notification(runbook="https://docs.example/kl?a=1&b=2"))
    assert body["text"] == "Not learning since step 2 (8 steps) · v0-run"
    (attachment,) = body["attachments"]
    first, second, foot = attachment["blocks"]
    assert first["text"]["text"].splitlines() == [
        "*Not learning since step 2 (8 steps) · v0-run*",
        "CRITICAL kl-stuck-at-zero · v0-run · step 10 of 80",
        "KL has been exactly 0 for 9 steps although rewards differ.",
        "Likely: The optimizer does not hold the model's parameters.",
        "What to do: Stop the run.",
    ]
    assert second["text"]["text"].splitlines() == [
        "reference KL 0 · groups with zero std 12%",
        "reference KL ▁▁▁ 0 → 0",
        "mean reward ▁▂▄█ 0.1 → 0.8",  # 7 × (0, 1/7, 3/7, 1) = 0, 1, 3, 7
    ]
    links = "<http://127.0.0.1:9853/|status page> · <https://docs.example/kl?a=1&amp;b=2|runbook>"
    assert foot["elements"][0]["text"] == f"{links} · team=math"


def test_a_runbook_without_an_address_is_the_command_that_shows_it() -> None:
    foot = SlackReceiver.payload(a_notification())["attachments"][0]["blocks"][-1]
    assert "runbook: grpo-watch explain kl-stuck-at-zero" in foot["elements"][0]["text"]


def test_resolved_is_short_and_green() -> None:
    body = SlackReceiver.payload(a_notification(status="resolved", ended=1_795_000_600.0, why="It lasted 8 steps."))
    assert body["text"] == "Resolved: Not learning since step 2 (8 steps) · v0-run"
    assert body["attachments"][0]["blocks"][0]["text"]["text"].splitlines()[1:3] == [
        "RESOLVED kl-stuck-at-zero · v0-run · step 10 of 80",
        "It lasted 8 steps.",
    ]
    assert "What to do" not in json.dumps(body)
    assert body["attachments"][0]["color"] != SlackReceiver.payload(a_notification())["attachments"][0]["color"]


def test_nothing_of_a_run_is_acted_on() -> None:
    """Mentions, links and control characters of hostile texts are shown, not obeyed; an address can't break out."""
    body = SlackReceiver.payload(
        a_notification(
            run=HOSTILE,
            message=HOSTILE,
            hint=HOSTILE,
            cause=HOSTILE,
            evidence={HOSTILE: HOSTILE},
            labels={"team": HOSTILE},
            series={HOSTILE: (1.0, 2.0)},
            page="http://x/|<!channel>",
        )
    )
    for text in texts(body):
        assert "<" not in text
        assert ">" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "&lt;!channel&gt;" in json.dumps(body)


@given(st.text(max_size=4_000))
def test_escaping_holds_its_limit_and_cuts_no_escape(text: str) -> None:
    shown = escaped(text, 700)
    assert len(shown) <= 700
    rest = shown.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")
    assert not set(rest) & set("<>&")


def test_slacks_limits_hold_for_the_longest_message() -> None:
    """At most 50 blocks, 3000 characters per text; a digest of 500 warnings lists some and counts the rest."""
    long = "&" * 10_000
    parts = tuple(a_notification(id=str(n), run=f"run-{n}", summary=long, severity="warning") for n in range(500))
    critical = tuple(a_notification(id=str(n), run=f"{n}{long}") for n in range(500))
    everything = a_notification(message=long, hint=long, cause=long, evidence={long: long}, labels={"a": long}, page="")
    for body in (
        SlackReceiver.payload(everything),
        SlackReceiver.payload(a_notification(parts=parts)),
        SlackReceiver.payload(a_notification(parts=critical)),
    ):
        (attachment,) = body["attachments"]
        assert len(attachment["blocks"]) <= 50
        for text in texts(body):
            assert len(text) <= MAX_TEXT
    digest = SlackReceiver.payload(a_notification(parts=parts))
    assert digest["text"] == "500 warnings on 500 runs"
    assert "… and 480 more: 480 warnings" in json.dumps(digest, ensure_ascii=False)


def test_a_digest_hides_no_critical_alert() -> None:
    """Each is named, before all warnings, however many came first; the headline counts them."""
    warnings = [a_notification(id=f"w{n}", run=f"calm-{n}", severity="warning") for n in range(30)]
    critical = [a_notification(id=f"c{n}", run=f"bad-{n}") for n in range(100)]
    over = [a_notification(id="over", run="well", status="resolved")]
    digest = SlackReceiver.payload(a_notification(parts=(*over, *warnings, critical[0])))
    assert digest["text"] == "1 critical, 30 warnings, 1 resolved on 32 runs"
    lines = "\n".join(texts(digest["attachments"])).splitlines()
    named = [line.split("·")[1].strip() for line in lines if line.startswith("•")]
    assert named == ["bad-0", *(f"calm-{n}" for n in range(19))]
    many = json.dumps(SlackReceiver.payload(a_notification(parts=(*warnings, *critical))))
    assert all(f"bad-{n} " in many for n in range(100))


def test_sparkline() -> None:
    assert sparkline([1.0, math.nan, 2.0, math.inf]) == "▁ █ "
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([math.nan]) == ""
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"  # their distance is no number
    assert sparkline([0.0, 1e-320]) == "▁█"


@given(st.lists(st.floats(), max_size=24))
def test_any_series_has_a_sparkline(values: list[float]) -> None:
    """One character per value; the least is the lowest bar, and the greatest the highest where they differ enough."""
    line = sparkline(values)
    finite = [value for value in values if math.isfinite(value)]
    assert len(line) == (len(values) if finite else 0)
    assert all((bar == " ") != math.isfinite(value) for bar, value in zip(line, values, strict=False))


def test_pace_retry_after_and_refusals(tmp_path: Path) -> None:
    """The address is a secret: no outcome and no name holds it."""
    answers = (Answer(429, {"Retry-After": "30"}), Answer(404, body=b"no_service"), Answer(400, body=b"invalid_blocks"))
    with receiving(*answers, Answer(200)) as server:
        file = secret_file(tmp_path / "slack", f"{server.url}/services/T0/B0/geheim\n")
        sinks = converted(Settings, {"sinks": [{"type": "slack", "webhook_url_file": str(file)}]}).sinks
        (routed,) = build(sinks, ReceiverContext(clock=lambda: 0.0))
        outcomes = [routed.receiver.send(a_notification()) for _ in range(4)]
        assert json.loads(server.sent[0].body) == SlackReceiver.payload(a_notification())
        assert server.sent[0].path == "/services/T0/B0/geheim"
    assert (routed.receiver.name, routed.receiver.pace, routed.route.digest) == ("slack", 1.0, True)
    assert [outcome.result for outcome in outcomes] == [
        DeliveryResult.RETRY,
        DeliveryResult.RETRY,
        DeliveryResult.REFUSED,
        DeliveryResult.DELIVERED,
    ]
    assert [outcome.retry_after for outcome in outcomes] == [30.0, None, None, None]
    assert outcomes[1].detail == "HTTP 404 no_service"
    assert "geheim" not in repr(outcomes)
