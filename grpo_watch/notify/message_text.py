"""Notifications as safe text: headlines, sentences, sparklines, digests, Alertmanager's labels and annotations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import partial

from grpo_watch.engine.rule import ENGLISH
from grpo_watch.report.words import evidence_words, label_of, rounded, say
from grpo_watch.safe_text import about, clean
from grpo_watch.store.messages import RESOLVED, Notification

BARS = "▁▂▃▄▅▆▇█"
_TOP = len(BARS) - 1
TEST_RULE = "notify-test"
"""The rule name in messages of `grpo-watch notify test`."""


def evidence_line(notification: Notification, limit: int = 1_000) -> str:
    """``reference KL 0 · groups with zero std 12%``, without values that the sentence already names."""
    words = evidence_words(notification.evidence, sentence(notification), notification.language)
    return clean(" · ".join(words), limit)


def headline(notification: Notification) -> str:
    """The line a phone shows: ``Not learning since step 3 (57 steps) · run``; ``1 critical, 3 warnings on 4 runs``."""
    language = notification.language
    if notification.parts:
        runs = len({part.run for part in notification.parts})
        words = "{alerts} on 1 run" if runs == 1 else "{alerts} on {n} runs"
        return say(language, words, alerts=counted(notification.parts, language), n=runs)
    what = notification.headline or notification.rule
    if notification.status == RESOLVED:
        what = say(language, "Resolved: {what}", what=what)
    return clean(f"{what} · {notification.run}", 200)


def details(notification: Notification) -> str:
    """The line below a headline and before a digest entry: ``CRITICAL kl-stuck-at-zero · run · step 12 of 80``."""
    past = notification.max_steps is None or notification.step > notification.max_steps
    words = "step {step}" if past else "step {step} of {max}"
    step = say(notification.language, words, step=notification.step, max=notification.max_steps)
    return clean(f"{_word(notification)} {notification.rule} · {notification.run} · {step}", 200)


def explained(notification: Notification) -> list[str]:
    """The lines below the headline: which rule, what is wrong, why, and what to do."""
    say_so = partial(say, notification.language)
    if notification.status == RESOLVED:
        return list(filter(None, (details(notification), notification.why, sentence(notification))))
    lines = [details(notification), sentence(notification)]
    lines += [say_so("Likely: {cause}", cause=notification.cause)] if notification.cause else []
    lines += [say_so("Explained by {rule}", rule=notification.caused_by)] if notification.caused_by else []
    lines += [say_so("What to do: {hint}", hint=notification.hint)] if notification.hint else []
    return lines


def sentence(notification: Notification) -> str:
    """The detector's own sentence, the same for every receiver, with the name of its subject."""
    return about(notification.key, notification.message or notification.summary)


def _word(notification: Notification) -> str:
    if notification.rule == TEST_RULE:
        return "TEST"
    if notification.status == RESOLVED:
        return say(notification.language, "RESOLVED")
    return say(notification.language, notification.severity).upper()


def sparkline(values: Iterable[float]) -> str:
    """A bar per value, scaled between the lowest and the highest; a gap for a value that is not finite."""
    row = list(values)
    finite = [value for value in row if math.isfinite(value)]
    if not finite:
        return ""
    low = min(finite) / 2  # halves: the difference of two numbers may overflow
    span = max(finite) / 2 - low or 1.0
    return "".join(BARS[round((value / 2 - low) / span * _TOP)] if math.isfinite(value) else " " for value in row)


def trends(notification: Notification) -> list[str]:
    """``reference KL ▁▂▄▆ 0.001 → 0.4`` for each series of the message."""
    lines = []
    for name, values in notification.series.items():
        bars = sparkline(values)
        if bars:
            label = clean(label_of(name, notification.language), 60)
            lines.append(f"{label} {bars} {rounded(values[0])} → {rounded(values[-1])}")
    return lines


_URGENCY = ("critical", "warning", "info", "resolved")


def ranked(parts: Iterable[Notification]) -> list[Notification]:
    """Firing alerts before resolved ones, by severity, then in order of arrival."""
    return sorted(parts, key=lambda part: _URGENCY.index(_urgency(part)))


def counted(parts: Iterable[Notification], language: str = ENGLISH) -> str:
    """``1 critical, 30 warnings, 2 resolved``."""
    count = Counter(map(_urgency, parts))
    words = "warnings" if count["warning"] > 1 else "warning"
    named = [(count[kind], say(language, words if kind == "warning" else kind)) for kind in _URGENCY]
    return say(language, ", ").join(
        say(language, "{n} {kind}", n=number, kind=kind) for number, kind in named if number
    )


def listed(
    parts: Sequence[Notification],
    shown: Callable[[str, int], str] = clean,
    *,
    most: int,
    room: int,
    lengths: Sequence[int],
    mark: str = "",
) -> list[str]:
    """A line per part: up to ``most``, and all critical ones while there is room; the rest is counted.

    Args:
        parts: the parts of a digest.
        shown: escapes a text and cuts it to so many characters.
        most: most lines, if fewer are critical.
        room: most bytes of all lines in UTF-8.
        lengths: lengths of the summaries to try in turn until the lines fit.
        mark: prefix of each line.
    """

    def line(part: Notification, length: int) -> str:
        name = mark + shown(details(part), 200)
        return f"{name}: {shown(part.headline or sentence(part), length)}" if length else name

    parts = ranked(parts)
    wanted = max(most, sum(_urgency(part) == "critical" for part in parts))
    for length in lengths:
        lines = [line(part, length) for part in parts[:wanted]]
        if _size([*lines, _rest(parts[wanted:])]) <= room:
            break
    while lines and _size([*lines, _rest(parts[len(lines) :])]) > room:
        lines.pop()
    rest = _rest(parts[len(lines) :])
    return [*lines, rest] if rest else lines


def _urgency(part: Notification) -> str:
    return "resolved" if part.status == RESOLVED else part.severity


def _rest(parts: Sequence[Notification]) -> str:
    """``… and 20 more: 20 warnings``."""
    if not parts:
        return ""
    language = parts[0].language
    return say(language, "… and {n} more: {alerts}", n=len(parts), alerts=counted(parts, language))


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


MAX_TITLE, MAX_BODY = 320, 1_700
"""Bytes: Discord takes 2,000 characters, WeCom's robots 2,048 bytes of text with the title."""
SHOWN_PARTS, ROOM = 10, 1_350
"""Most alerts of a digest that are listed, unless more are critical, and bytes for all of them; an address follows."""


def title_of(notification: Notification) -> str:
    """The headline in at most ``MAX_TITLE`` bytes: a run's name may be long, and each ``@`` in it takes four."""
    return _bounded(_harmless(headline(notification)), MAX_TITLE)


def body_of(notification: Notification) -> str:
    """The text of a message in at most ``MAX_BODY`` bytes; completions in it can't mention anybody."""
    if notification.parts:
        lines = listed(notification.parts, most=SHOWN_PARTS, room=ROOM, lengths=(200, 60, 0))
    else:
        lines = [clean(line, 500) for line in explained(notification)]
        lines += [evidence_line(notification, 400), *trends(notification)]
    named = say(notification.language, ": ").join((say(notification.language, "Runbook"), notification.runbook))
    lines += [clean(notification.page, 300), clean(named, 300) if notification.runbook else ""]
    return _bounded(_harmless("\n".join(line for line in lines if line)), MAX_BODY)


def _harmless(text: str) -> str:
    """The text with mentions (``@all``, Feishu's ``<at …>``) and links broken at their first character."""
    return text.replace("@", "@\u2060").replace("<", "<\u2060").replace("](", "]\u2060(")


def _bounded(text: str, size: int) -> str:
    """The text in at most this many bytes, cut between characters."""
    written = text.encode("utf-8", "replace")
    return text if len(written) <= size else written[: size - 3].decode("utf-8", "ignore") + "…"


ALERT, ALIVE = "GrpoRunAlert", "GrpoWatchAlive"
"""``alertname`` of alerts about runs, and of the heartbeat."""

Labels = dict[str, str]


def labels_of(notification: Notification) -> Labels:
    """Labels under which this alert equals that of the shipped Prometheus rule."""
    own = {"alertname": ALERT, "rule": notification.rule, "run": notification.run, "severity": notification.severity}
    # like the exporter: only characters that UTF-8 lacks are replaced, or the two alerts would differ
    return {
        name: value.encode("utf-8", "replace").decode()
        for name, value in {**notification.labels, **own}.items()
        if value
    }


def annotations_of(notification: Notification) -> dict[str, str]:
    """The annotations; unknown values are left out."""
    notes = {
        "headline": clean(notification.headline),
        "summary": clean(sentence(notification)),
        "evidence": evidence_line(notification),
        "cause": clean(
            notification.cause or (f"explained by {notification.caused_by}" if notification.caused_by else "")
        ),
        "fix": clean(notification.hint),
        "resolved": clean(notification.why),
        "runbook": notification.runbook,
        "runbook_url": notification.runbook if notification.runbook.startswith(("http://", "https://")) else "",
        "page": notification.page,
    }
    return {name: text for name, text in notes.items() if text}


def parts_of(notification: Notification) -> tuple[Notification, ...]:
    """The parts of a digest, or the notification itself."""
    return notification.parts or (notification,)


def moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
