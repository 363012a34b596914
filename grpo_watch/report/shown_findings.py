"""What people are shown of a run's findings: those of a rule that say the same are one, with one wording of when."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from grpo_watch.engine.diagnosis import Finding, earlier_sign
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import Severity
from grpo_watch.engine.snapshot import RunSnapshot

FUNCTION_MEAN = "reward_function_mean["
NAMED = 5
"""Keys that a summary names."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """Findings of one rule that are shown as one.

    ``finding`` is the one that matters most, with the summary of all; ``keys`` are those of all, ``episodes`` counts
    the times that the alert fired for the key it is about. ``since`` says when, in words.
    """

    finding: Finding
    keys: tuple[str, ...]
    episodes: int
    since: str


def shown_findings(snapshot: RunSnapshot) -> tuple[ShownFinding, ...]:
    """All findings of the run, those that say the same as one, in the order of diagnosis."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in snapshot.findings:
        groups.setdefault(_alike(finding), []).append(finding)
    return tuple(_shown(group, snapshot) for group in groups.values())


def top_finding(snapshot: RunSnapshot) -> ShownFinding | None:
    """The one that a person should read first; None where the verdict counts none above info."""
    for shown in shown_findings(snapshot):
        found = shown.finding
        counts = found.resolved_step is None or found.attempt == snapshot.attempt
        if found.caused_by is None and found.severity is not Severity.INFO and counts:
            return shown
    return None


def when(finding: Finding) -> str:
    """The steps at which it began, fired and resolved; with the severity it fired as, where that changed since."""
    text = f"since step {finding.first_step}, fired at {finding.fired_step}"
    text += f" as {finding.told_as.value}" if finding.told_as else ""
    text += f", resolved at {finding.resolved}" if finding.resolved else ""
    return f"{text}, in {len(finding.episodes)} episodes" if len(finding.episodes) > 1 else text


def began(finding: Finding, findings: Iterable[Finding]) -> str:
    """Where its first sign was another finding, which it explains: the step and the rule. Else empty."""
    earlier = earlier_sign(finding, findings)
    return f"step {earlier.first_step} ({earlier.rule})" if earlier else ""


def _alike(finding: Finding) -> tuple[object, ...]:
    """Episodes of one key are alike whatever their numbers are; so are keys whose texts differ in key and numbers."""
    open_one, explained = finding.resolved_step is None, finding.caused_by
    words = finding.summary.replace(finding.key, "") if finding.key else finding.summary
    return finding.rule, explained, _NUMBER.sub("0", words) if finding.key and open_one else finding.key


def _shown(group: list[Finding], snapshot: RunSnapshot) -> ShownFinding:
    lead = group[0]
    keys = tuple(dict.fromkeys(finding.key for finding in group if finding.key))
    episodes = sum(max(1, len(finding.episodes)) for finding in group if finding.key == lead.key)
    first_sign = began(lead, snapshot.findings)
    since = when(lead) + (f"; first sign: {first_sign}" if first_sign else "")
    since += f"; {episodes} episodes" if episodes > max(1, len(lead.episodes)) else ""
    summary = f"{_counted(keys, snapshot)}: {lead.summary}" if len(keys) > 1 else lead.summary
    return ShownFinding(replace(lead, summary=summary), keys, episodes, since)


def _counted(keys: tuple[str, ...], snapshot: RunSnapshot) -> str:
    """``3 of 7 reward functions (format, length, style)``, or how many are alike."""
    functions = {split_label(name)[1] for name in snapshot.values if name.startswith(FUNCTION_MEAN)}
    known = functions.issuperset(keys)
    noun, many = ("reward functions", f"{len(keys)} of {len(functions)}") if known else ("alike", str(len(keys)))
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"{many} {noun} ({', '.join(keys[:NAMED])}{more})"
