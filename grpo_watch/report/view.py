"""Prepares a run and its findings for people, once for every report, the API, the page and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from shlex import quote

from grpo_watch import lazy_re as re
from grpo_watch.engine.diagnosis import LATE, Finding, Waste, earlier_sign, first_sign
from grpo_watch.engine.judgement import guessed_lines
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import ENGLISH
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.engine.window import plain_sum
from grpo_watch.report.blindness import headline, verdict_words
from grpo_watch.report.words import cost_words, evidence_words, say, sentence_words

FUNCTION_MEAN = "reward_function_mean["
NAMED = 5
"""Most keys named in a summary."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class FindingView:
    """Findings of one rule that are shown as one.

    ``finding`` is the most important one, with the summary of all; ``keys`` are those of all, ``episodes`` counts
    the times that the alert fired for its key. ``since`` says when, in words. ``counted``: the verdict
    rests on it; ``headline`` says in plain words what is wrong, since when, and the cost.
    """

    finding: Finding
    keys: tuple[str, ...]
    episodes: int
    since: str
    counted: bool
    language: str = ENGLISH
    headline: str = ""

    @property
    def fires(self) -> bool:
        """Whether it fires and nothing explains it."""
        return self.finding.resolved_step is None and self.finding.caused_by is None

    @property
    def key(self) -> str:
        """Its key, if there is a single one; else empty."""
        return self.finding.key if len(self.keys) == 1 else ""

    @property
    def words(self) -> list[str]:
        """The evidence in words."""
        return evidence_words(self.finding.evidence, self.finding.summary, self.language)

    @property
    def hint(self) -> str:
        """The fix; empty for an info, which needs none."""
        return "" if self.finding.severity is Severity.INFO else self.finding.hint

    @property
    def details(self) -> list[tuple[str, str]]:
        """Labels and texts below the finding: likely causes, fix, cost, evidence."""
        lines = [(say(self.language, "Likely cause"), cause) for cause in self.causes]
        lines += [(say(self.language, "What to do"), self.hint), (say(self.language, "Wasted"), self.wasted)]
        lines += [(say(self.language, "Evidence"), " · ".join(self.words))]
        return [(label, text) for label, text in lines if text]

    @property
    def causes(self) -> list[str]:
        """The likely causes, likeliest first."""
        return [sentence_words(self.language, cause) for cause in self.finding.causes]

    @property
    def wasted(self) -> str:
        """The cost in words; empty if unknown."""
        return "" if self.finding.wasted is None else cost_words(self.language, self.finding.wasted)


def views(snapshot: RunSnapshot) -> tuple[FindingView, ...]:
    """All findings of the run, equal ones merged, in the order of diagnosis."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in snapshot.findings:
        groups.setdefault(_alike(finding), []).append(finding)
    return tuple(_view(group, snapshot) for group in groups.values())


def top_view(snapshot: RunSnapshot) -> FindingView | None:
    """The finding to read first; None if the verdict rests on none."""
    return next((view for view in views(snapshot) if view.counted), None)


def causes(shown: Iterable[FindingView]) -> list[FindingView]:
    """The findings that nothing explains."""
    return [view for view in shown if view.finding.caused_by is None]


def by_cause(shown: Iterable[FindingView]) -> dict[str, list[Finding]]:
    """The consequences by the rule that explains them, each after the one that explains its cause."""
    shown = list(shown)
    found: dict[str, list[Finding]] = {}
    for view in shown:
        if view.finding.caused_by is not None:
            found.setdefault(view.finding.caused_by, []).append(view.finding)
    order = [view.finding.rule for view in causes(shown)]
    for rule in order:
        order += [finding.rule for finding in found.get(rule, ()) if finding.rule not in order]
    return {cause: found[cause] for cause in dict.fromkeys((*order, *found)) if cause in found}


def in_short(finding: Finding, language: str = ENGLISH, findings: Iterable[Finding] = ()) -> str:
    """``Not learning since step 3 (57 steps, 12 minutes on 8 GPUs)``; for an info its summary.

    ``findings`` are those of the run: step and cost are counted from the first sign.
    """
    if finding.severity is Severity.INFO or not finding.headline:
        return finding.summary
    cost = cost_words(language, finding.wasted) if finding.wasted else ""
    named = say(language, finding.headline)
    said = named.replace("{step}", str(finding.fired_step))
    begin = first_sign(finding, findings).first_step
    if begin > 0 and said == named:
        over = finding.resolved_step is not None
        words = "{what} from step {step} to {end}" if over else "{what} since step {step}"
        what, colon, why = said.partition(say(language, ": "))
        said = say(language, words, what=what, step=begin, end=finding.resolved_step) + colon + why
    return say(language, "{what} ({cost})", what=said, cost=cost) if cost else said


def pasteable(snapshot: RunSnapshot, folder: str) -> RunSnapshot:
    """The snapshot with hints whose commands work outside the run's folder: checkpoints below ``folder``, if known."""
    if not folder:
        return snapshot
    return replace(snapshot, findings=tuple(_pasteable(finding, folder) for finding in snapshot.findings))


def _pasteable(finding: Finding, folder: str) -> Finding:
    hint = finding.hint
    for name, value in finding.evidence.items():
        if name.endswith("checkpoint") and isinstance(value, str) and not value.startswith("/"):
            hint = hint.replace(f" {quote(value)}", f" {quote(f'{folder}/{value}')}")
    return replace(finding, hint=hint)


def in_force(finding: Finding, snapshot: RunSnapshot) -> bool:
    """Whether it still applies to the run: it fires, or is of the last attempt."""
    return finding.resolved_step is None or finding.attempt == snapshot.attempt


def when(finding: Finding, language: str = ENGLISH) -> str:
    """The steps at which it began, fired and resolved; also the severity at firing if that has changed."""
    text = say(language, "since step {first}, fired at {fired}", first=finding.first_step, fired=finding.fired_step)
    text += say(language, " as {severity}", severity=say(language, finding.told_as.value)) if finding.told_as else ""
    text += resolved_at(finding, language)
    return text + (say(language, ", in {n} episodes", n=len(finding.episodes)) if len(finding.episodes) > 1 else "")


def resolved_at(finding: Finding, language: str) -> str:
    """``, resolved at 30``; empty if it is not resolved."""
    if finding.resolved_step is None:
        return ""
    later = finding.resolved_step < finding.fired_step  # a step of the attempt that continued
    words = ", resolved at {step} of a later attempt" if later else ", resolved at {step}"
    return say(language, words, step=finding.resolved_step)


def course(finding: Finding, language: str = ENGLISH) -> str:
    """Its severity and steps, for a timeline."""
    later = finding.caused_by if finding.told_as else None
    text = f"{say(language, finding.severity.value)} {when(finding, language)}"
    return text + (say(language, ", later explained by {rule}", rule=later) if later else "")


def in_brief(finding: Finding, language: str = ENGLISH) -> str:
    """``warning, since step 12``: a consequence beside its cause."""
    severity = say(language, finding.severity.value)
    return say(language, "{severity}, since step {step}", severity=severity, step=finding.first_step)


def software(framework: str | None, version: str | None = None) -> str:
    """``trl 1.16.0``."""
    return " ".join(filter(None, (framework, version))) or "unknown framework"


def progress(snapshot: RunSnapshot) -> str:
    """``step 12 of 80``."""
    words = "step {step} of {max}" if snapshot.max_steps else "step {step}"
    return say(snapshot.language, words, step=snapshot.step, max=snapshot.max_steps)


def facts(snapshot: RunSnapshot) -> list[str]:
    """Framework, step and attempt, each in a few words."""
    phrases = [say(snapshot.language, software(snapshot.framework, snapshot.version)), progress(snapshot)]
    return [*phrases, say(snapshot.language, "attempt {n}", n=snapshot.attempt)] if snapshot.attempt > 1 else phrases


def sentence(caveat: str, snapshot: RunSnapshot) -> str:
    """A caveat as a full sentence."""
    words = say(snapshot.language, caveat)
    return f"{words[0].upper()}{words[1:]}{say(snapshot.language, '.')}"


def shouted(snapshot: RunSnapshot) -> str:
    """The headline with the verdict in capitals."""
    words = headline(snapshot)
    nothing = "no finding"  # no finding where nothing could be judged is not health
    verdict = nothing if words.startswith(nothing) else verdict_words(snapshot)
    return words.replace(verdict, verdict.upper(), 1)


def judgement_lines(snapshot: RunSnapshot) -> Iterator[tuple[str, str]]:
    """A label and a line for each early sign, each unread key that matters, and each guessed name."""
    judgement = snapshot.judgement
    for sign in judgement.early_signs:
        yield say(snapshot.language, "early sign"), f"{sign.rule}: {sign.text}"
    for key, line in judgement.unread.items():
        words = "{key}: if this is it, say so with {line} in grpo-watch.yaml"
        yield say(snapshot.language, "not read"), say(snapshot.language, words, key=key, line=line)
    for line in guessed_lines(judgement.guessed):
        yield say(snapshot.language, "guessed"), sentence_words(snapshot.language, line, "errors")


def _alike(finding: Finding) -> tuple[object, ...]:
    """The grouping key of a finding: equal for episodes of one key, and if texts differ in key and numbers only."""
    open_one, explained = finding.resolved_step is None, finding.caused_by
    words = finding.summary.replace(finding.key, "") if finding.key else finding.summary
    return finding.rule, explained, _NUMBER.sub("0", words) if finding.key and open_one else finding.key


def _view(group: list[Finding], snapshot: RunSnapshot) -> FindingView:
    lead = group[0]
    keys = tuple(dict.fromkeys(finding.key for finding in group if finding.key))
    episodes = sum(max(1, len(finding.episodes)) for finding in group if finding.key == lead.key)
    language = snapshot.language
    since, earlier = when(lead, language), earlier_sign(lead, snapshot.findings)
    if earlier is not None:  # another finding, which it explains
        sign = say(language, "step {step} ({rule})", step=earlier.first_step, rule=earlier.rule)
        since += say(language, "; first sign: {sign}", sign=sign)
    since += say(language, "; {n} episodes", n=episodes) if episodes > max(1, len(lead.episodes)) else ""
    summary = f"{_counted(keys, snapshot)}: {lead.summary}" if len(keys) > 1 else lead.summary
    counted = lead.caused_by is None and lead.severity is not Severity.INFO and in_force(lead, snapshot)
    short = in_short(lead, language, snapshot.findings)
    return FindingView(replace(lead, summary=summary), keys, episodes, since, counted, language, short)


def _counted(keys: tuple[str, ...], snapshot: RunSnapshot) -> str:
    """``3 of 7 reward functions (format, length, style)``, or the number of keys."""
    functions = {split_label(name)[1] for name in snapshot.values if name.startswith(FUNCTION_MEAN)}
    known = functions.issuperset(keys)
    more = say(snapshot.language, " and {n} more", n=len(keys) - NAMED) if len(keys) > NAMED else ""
    words = "{n} of {all} reward functions ({names})" if known else "{n} alike ({names})"
    names = f"{', '.join(keys[:NAMED])}{more}"
    return say(snapshot.language, words, n=len(keys), all=len(functions), names=names)


def joined(snapshot: RunSnapshot) -> RunSnapshot:
    """The snapshot with the episodes of a recurring alert merged into one finding, in the place of the first."""
    of_alert: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in snapshot.findings:
        of_alert.setdefault((finding.rule, finding.key, finding.attempt), []).append(finding)
    if all(len(found) == 1 for found in of_alert.values()):
        return snapshot
    stands_for = {id(part): chain for found in of_alert.values() for chain in _chains(found) for part in chain}
    listed: list[Finding] = []
    done: set[int] = set()
    for finding in snapshot.findings:
        chain = stands_for[id(finding)]
        if id(chain[0]) not in done:
            done.add(id(chain[0]))
            listed.append(_one(chain))
    return replace(snapshot, findings=tuple(listed))


def _chains(found: list[Finding]) -> Iterator[list[Finding]]:
    """Chains of episodes in order; a gap of up to ``LATE`` steps, or no longer than the previous episode, joins two."""
    chain: list[Finding] = []
    for finding in sorted(found, key=lambda each: (each.first_step, each.fired_step)):
        if chain and not _follows(chain[-1], finding):
            yield chain
            chain = []
        chain.append(finding)
    yield chain


def _follows(before: Finding, after: Finding) -> bool:
    end = before.resolved_step
    if end is None or before.caused_by != after.caused_by:
        return False
    return after.first_step - end <= max(LATE, end - before.first_step)


def _one(chain: list[Finding]) -> Finding:
    """The newest episode, or the worst if all are resolved, with the beginning of the first and the cost of all."""
    if len(chain) == 1:
        return chain[0]
    first, newest = chain[0], chain[-1]
    worst = newest if newest.resolved_step is None else max(chain, key=lambda each: each.severity.rank)
    return replace(
        newest,
        summary=worst.summary,
        evidence=worst.evidence,
        hint=worst.hint,
        first_step=first.first_step,
        fired_step=first.fired_step,
        severity=worst.severity,
        wasted=_sum([part.wasted for part in chain if part.wasted is not None]),
        episodes=tuple((part.first_step, part.fired_step, part.resolved_step) for part in chain),
    )


def _sum(parts: list[Waste]) -> Waste | None:
    if not parts:
        return None
    hours = [part.hours for part in parts if part.hours is not None]
    gpu = [part.gpu_hours for part in parts if part.gpu_hours is not None]
    return Waste(
        sum(part.steps for part in parts), plain_sum(hours) if hours else None, plain_sum(gpu) if gpu else None
    )
