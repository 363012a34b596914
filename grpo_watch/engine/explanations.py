"""Which rules of a run may explain which, from what their detectors declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_watch.engine.monitor import Monitor
from grpo_watch.engine.records import CompletionSummary
from grpo_watch.engine.traits import Traits


def causes_of(detectors: Mapping[str, type[Traits]]) -> dict[str, tuple[str, ...]]:
    """For each detector the names of those that explain it, best first; those that it does not name come last."""
    causes = {name: traits.explained_by for name, traits in detectors.items()}
    for name, traits in sorted(detectors.items()):
        for effect in traits.explains:
            if effect in causes and name not in causes[effect]:
                causes[effect] += (name,)
    return causes


class Relations:
    """The traits of the rules that watch one run, by the rule's name.

    A rule under its own name counts as the detector that it uses.
    """

    def __init__(self, monitors: Iterable[Monitor]) -> None:
        self._names: dict[str, str] = {}
        self._traits: dict[str, type[Traits]] = {}
        self._of_completions: set[str] = set()
        for monitor in monitors:
            rule = monitor.rule
            self._names[rule.name] = rule.name if rule.when is not None else rule.detector or rule.name
            self._traits[rule.name] = type(monitor.detector)
            if CompletionSummary in monitor.detector.reads:
                self._of_completions.add(rule.name)
        self._candidates: dict[str, frozenset[str]] = {}
        by_detector = {self._names[rule]: traits for rule, traits in self._traits.items()}
        self._causes = causes_of(by_detector)

    def traits(self, rule: str) -> type[Traits]:
        """What the rule's detector declares; the defaults where the rule is not known."""
        return self._traits.get(rule, Traits)

    def reads_completions(self, rule: str) -> bool:
        """Whether the rule's findings may begin at a step of dumped completions, between two rows of metrics."""
        return rule in self._of_completions

    def rank(self, cause: str, effect: str) -> int | None:
        """The place of a rule among those that explain the other, 0 being the best; None where it is none of them."""
        causes = self._causes.get(self._name(effect), ())
        name = self._name(cause)
        return causes.index(name) if name in causes else None

    def candidates(self, effect: str) -> frozenset[str]:
        """The rules of this run of which a finding may explain one of the given rule, itself among them at times."""
        found = self._candidates.get(effect)
        if found is None:
            collapse = self.traits(effect).part_of_collapse
            found = self._candidates[effect] = frozenset(
                rule
                for rule, traits in self._traits.items()
                if self.rank(rule, effect) is not None or (collapse and traits.part_of_collapse)
            )
        return found

    def withdraws(self, cause: str, effect: str) -> bool:
        """Whether the cause refutes the finding instead of explaining it."""
        return self.traits(effect).withdrawn_by == self._name(cause)

    def kinds(self, cause: str, effect: str) -> tuple[str, ...] | None:
        """The values of the effect's evidence ``kind`` for which the cause is one; None: for any."""
        return self.traits(effect).explained_only_as.get(self._name(cause))

    def _name(self, rule: str) -> str:
        return self._names.get(rule, rule)
