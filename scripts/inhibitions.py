"""Writes Alertmanager's inhibitions among the rules of a frozen policy, from what their detectors declare."""

from __future__ import annotations

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import causes_of

EQUAL = "run, namespace, team"


def frozen_policy() -> str:
    """One inhibition for each set of consequences, the nearest cause last; ends with a newline.

    A cause that withdraws its effect is left out: the effect becomes an `info`, which is not sent.
    """
    detectors = catalogue()
    frozen = [name for name, detector in detectors.items() if detector.shows_frozen_policy]
    withdrawing = {detector.withdrawn_by for detector in detectors.values()}
    causes = causes_of(detectors)
    groups: dict[tuple[str, ...], list[str]] = {}
    for cause in frozen:
        effects = tuple(effect for effect in frozen if cause in causes[effect])
        if effects and cause not in withdrawing:
            groups.setdefault(effects, []).append(cause)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[0]), group[1]))
    return "".join(_inhibition(sources, targets) for targets, sources in ordered)


def _inhibition(sources: list[str], targets: tuple[str, ...]) -> str:
    return (
        f'  - source_matchers: [{_matcher(sources)}, severity="critical"]\n'
        f"    target_matchers: [{_matcher(targets)}]\n"
        f"    equal: [{EQUAL}]\n"
    )


def _matcher(rules: list[str] | tuple[str, ...]) -> str:
    return f'rule="{rules[0]}"' if len(rules) == 1 else f'rule=~"{"|".join(rules)}"'
