"""Draws when rules would have fired over runs: one lane per rule and run, steps from left to right, as a plain SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from grpo_watch.pipeline.backtest import ReplayedRule

LANE, BAR, LEFT, WIDTH, TOP = 18, 10, 320, 640, 28
"""Heights and widths in pixels."""

COLOURS = {"critical": "#c0392b", "warning": "#e08e0b", "info": "#3b78b8"}
CHARACTERS = 44
"""Longest label."""


def firing_plot(replayed: Sequence[ReplayedRule]) -> str:
    """The drawing as text. Lanes of a rule stand together; blind ones are dashed; a firing is a bar in its colour."""
    lanes = sorted(replayed, key=lambda each: each.rule)
    last = max((each.steps for each in lanes), default=0) or 1
    height = TOP + LANE * (len(lanes) + len({each.rule for each in lanes})) + LANE
    body = "\n".join(_lanes(lanes, last))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{LEFT}" y="16">step 0</text><text x="{LEFT + WIDTH}" y="16" text-anchor="end">{last}</text>\n'
        f"{body}\n</svg>\n"
    )


def _lanes(lanes: Sequence[ReplayedRule], last: int) -> Iterator[str]:
    y, rule = TOP, None
    for lane in lanes:
        if lane.rule != rule:
            rule = lane.rule
            yield f'<text x="8" y="{y + BAR}" font-weight="bold">{escape(rule)}</text>'
            y += LANE
        yield from _lane(lane, y, last)
        y += LANE


def _lane(lane: ReplayedRule, y: int, last: int) -> Iterator[str]:
    name = lane.run if len(lane.run) <= CHARACTERS else f"…{lane.run[1 - CHARACTERS :]}"
    yield f'<text x="20" y="{y + BAR}">{escape(name)}</text>'
    dashed = ' stroke-dasharray="2 4"' if lane.blind or lane.broken else ""
    middle, end = y + BAR // 2 + 1, _x(lane.steps, last)
    yield f'<line x1="{LEFT}" y1="{middle}" x2="{end}" y2="{middle}" stroke="#999"{dashed}/>'
    for finding in lane.findings:
        first, fired = _x(finding.first_step, last), _x(finding.fired_step or 0, last)
        until = end if finding.resolved_step is None else _x(finding.resolved_step, last)
        title = f"{lane.rule}: {finding.severity.value} from step {finding.first_step}, fired {finding.fired_step}"
        yield f'<g fill="{COLOURS[finding.severity.value]}"><title>{escape(title)}</title>'
        yield _bar(min(first, fired), until, y, ' opacity="0.4"')
        yield f"{_bar(fired, until, y)}</g>"


def _bar(start: float, end: float, y: int, more: str = "") -> str:
    return f'<rect x="{start}" y="{y + 1}" width="{max(end - start, 2):g}" height="{BAR}"{more}/>'


def _x(step: int, last: int) -> float:
    return round(LEFT + WIDTH * min(step, last) / last, 1)
