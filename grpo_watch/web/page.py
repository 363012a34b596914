"""Turns the picture of all runs into the status page: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib.resources import files

from grpo_watch import __version__
from grpo_watch.core.diagnosis import Finding
from grpo_watch.core.records import Scalar
from grpo_watch.core.snapshot import RuleStatus, RuleView, RunSnapshot, RunVerdict
from grpo_watch.core.waste import wasted_text
from grpo_watch.sinks.base import Picture, RunPicture
from grpo_watch.sinks.text import visible

REFRESH_SECONDS = 5


def style() -> str:
    """The page's style sheet."""
    return files("grpo_watch.web").joinpath("static/style.css").read_text(encoding="utf-8")


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def tag(name: str, *inner: object, **attributes: str) -> Html:
    """An element; everything in it that is not ``Html`` is escaped. ``class_`` stands for ``class``."""
    told = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{told}>{joined(inner)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """The parts one after the other, those that are not ``Html`` escaped, with what can't be seen in them shown."""
    return Html("".join(part if isinstance(part, Html) else escape(visible(str(part))) for part in parts))


def page(picture: Picture) -> str:
    """The whole page: what concerns the watcher, then each run, the ones that need a person first."""
    worst = [RunVerdict.CRITICAL, RunVerdict.WARNING, RunVerdict.NOT_EVALUABLE, RunVerdict.HEALTHY]
    runs = sorted(picture.runs, key=lambda run: (worst.index(run.snapshot.verdict), run.snapshot.run))
    head = joined(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
            Html(f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'),
            tag("title", "grpo-watch"),
            Html(f"<style>{style()}</style>"),
        ]
    )
    body = [
        tag("h1", "grpo-watch ", tag("span", __version__, class_="dim")),
        *(tag("p", problem, class_="warning") for problem in picture.problems),
        *(tag("section", *_run(run)) for run in runs),
        *([] if runs else [tag("p", "No run was found yet.", class_="dim")]),
    ]
    return f'<!doctype html><html lang="en">{tag("head", head)}{tag("body", *body)}</html>\n'


def _run(run: RunPicture) -> Iterator[Html]:
    snapshot = run.snapshot
    verdict = snapshot.verdict.value
    yield tag("h2", snapshot.run, " ", tag("span", verdict.replace("-", " "), class_=verdict))
    yield tag("p", _progress(run), class_="dim")
    open_findings = [finding for finding in snapshot.findings if finding.resolved_step is None]
    yield from (_finding(finding) for finding in open_findings)
    yield from (tag("p", c.problem, class_="warning") for c in run.channels if c.problem)
    yield from _rules(snapshot)


def _progress(run: RunPicture) -> str:
    snapshot = run.snapshot
    software = " ".join(filter(None, (snapshot.framework, snapshot.version))) or "framework unknown"
    goal = f" of {snapshot.max_steps}" if snapshot.max_steps else ""
    attempt = f", attempt {snapshot.attempt}" if snapshot.attempt > 1 else ""
    return f"{software} · step {snapshot.step}{goal}{attempt} · {'running' if run.active else 'not running'}"


def _finding(finding: Finding) -> Html:
    since = f" since step {finding.first_step}, told at step {finding.fired_step}"
    cause = [tag("p", "Explained by ", finding.caused_by, class_="dim")] if finding.caused_by else []
    waste = [tag("p", tag("b", "Wasted so far: "), wasted_text(finding.wasted))] if finding.wasted else []
    likely = [tag("p", tag("b", "Likely: "), text) for text in finding.causes]
    return tag(
        "article",
        tag("h3", finding.rule, f" · {finding.severity.value}", tag("span", since, class_="dim")),
        tag("p", finding.summary),
        tag("p", tag("b", "What to do: "), finding.hint),
        *likely,
        *waste,
        *cause,
        _table(finding.evidence),
        class_=finding.severity.value,
    )


def _table(evidence: Mapping[str, Scalar]) -> Html:
    return tag("table", *(tag("tr", tag("td", name), tag("td", value)) for name, value in evidence.items()))


def _rules(snapshot: RunSnapshot) -> Iterator[Html]:
    """The rules that can't see, with the reasons; folded away."""
    unseeing: list[RuleView] = [rule for rule in snapshot.rules if rule.status in {RuleStatus.BLIND, RuleStatus.BROKEN}]
    live = len(snapshot.rules) - len(unseeing)
    if unseeing:
        rows = [
            tag("tr", tag("td", rule.rule), tag("td", rule.status.value), tag("td", rule.reason)) for rule in unseeing
        ]
        told = tag("summary", f"{live} rules watch this run; {len(unseeing)} can't, and why")
        yield tag("details", told, tag("table", *rows))
