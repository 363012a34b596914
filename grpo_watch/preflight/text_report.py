"""Renders an assessment as a few aligned lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.frameworks.launch_rules import Prediction
from grpo_watch.frameworks.launches import Launch, launch_facts
from grpo_watch.preflight.findings import FINE, MISSING, Assessment, LaunchProblem, Suggestion, exit_code
from grpo_watch.report.lines import Line, aligned, padded
from grpo_watch.report.words import say, sentence_words
from grpo_watch.safe_text import visible

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
MAX_SUGGESTIONS = 4
MAX_OPEN = 6
"""Most lines of a kind that are shown; more are counted."""

Translated = Callable[[str], str]
"""Translates one of our texts for the reader."""


def render(launch: Launch, assessment: Assessment, language: str) -> Iterator[Line]:
    """Verdict, problems, nearest valid settings, prediction, and unknowns."""
    said = partial(sentence_words, language, part="launch")
    yield _headline(launch, assessment, said)
    for problem in assessment.problems:
        yield from _problem(problem, language, said)
    if assessment.suggestions:
        yield Line()
        yield from _suggestions(launch, assessment.suggestions, said)
    if assessment.prediction is not None:
        yield Line()
        yield from _prediction(assessment.prediction, said)
    yield from _open(launch, assessment, said)


def _headline(launch: Launch, assessment: Assessment, said: Translated) -> Line:
    code = exit_code(assessment)
    refused = any(problem.severity is Severity.CRITICAL for problem in assessment.problems)
    word, style = ("WILL FAIL", "bold red") if refused else ("LOOK AGAIN", "bold yellow")
    if code in {FINE, MISSING}:
        word, style = ("OK", "bold green") if code == FINE else ("NOT SURE", "bold yellow")
    line = Line(said(word), style).append(f"  {visible(launch.text)}", "bold")
    facts = [said(_framework(assessment))]
    for setting, one, many in ((launch.world_size, "process", "processes"), (launch.dataset_size, "row", "rows")):
        if setting is not None and isinstance(setting.value, int):
            facts.append(said(f"{setting.value:,} {one if setting.value == 1 else many}"))
    return line.append("  " + " · ".join(facts), "dim")


def _framework(assessment: Assessment) -> str:
    """Framework and version, and where the version was found unless the user gave it."""
    framework = assessment.framework or ""
    facts = launch_facts().get(framework)
    maker = f"{framework} on {facts.maker}" if facts is not None and facts.maker else framework
    name = " ".join(part for part in (maker, assessment.version) if part)
    origin = assessment.version_origin
    if not name or not origin or origin.startswith("--"):
        return name or "unknown framework"
    return f"{name} ({visible(origin.removeprefix(f'{assessment.framework} '))})"


def _problem(problem: LaunchProblem, language: str, said: Translated) -> Iterator[Line]:
    severity = problem.severity.value
    line = Line(f"{padded(say(language, severity), 8)}  ", STYLES[severity], indent=2)
    line.append(problem.check, "bold")
    if problem.where:
        line.append(f"  {visible(said(problem.where))}", "dim")
    yield line
    yield Line(visible(said(problem.message)), indent=12)
    if problem.says and problem.says not in problem.message:
        yield Line(f"{said('it says')}{say(language, ': ')}{visible(problem.says)}", "dim", indent=12)
    if problem.hint:
        yield Line(f"→ {visible(said(problem.hint))}", indent=12)


def _suggestions(launch: Launch, suggestions: Sequence[Suggestion], said: Translated) -> Iterator[Line]:
    """A row per change, from the old to the new value; the first of each suggestion names its effect."""
    rows: list[list[Line | str]] = [["", Line(said("nearest valid settings"), "dim"), ""]]
    for number, suggestion in enumerate(suggestions[:MAX_SUGGESTIONS], 1):
        first, *others = (_change(launch, suggestion, name, said) for name in suggestion.changes)
        rows.append([str(number), first, visible(said(suggestion.why))])
        rows += (["", change, ""] for change in others)
    return aligned(rows, indent=2)


def _change(launch: Launch, suggestion: Suggestion, name: str, said: Translated) -> Line:
    given = launch.settings[name].value if name in launch.settings else None
    was = said(suggestion.was.get(name, "not given"))
    line = Line(f"{visible(name)} {_cell(given, absent=was)} → ")
    return line.append(_cell(suggestion.changes[name], absent=said("leave out")), "bold")


def _cell(value: Scalar, absent: str) -> str:
    return absent if value is None else visible(str(value))


def _prediction(prediction: Prediction, said: Translated) -> Iterator[Line]:
    yield Line(said("prediction"), "dim", indent=2)
    numbers = list(_numbers(prediction))
    digits = max((len(value) for _, value in numbers), default=0)
    yield from aligned([[Line(said(name), "dim"), value.rjust(digits)] for name, value in numbers], indent=4)
    if prediction.formula:
        yield Line(visible(said(prediction.formula)), indent=4)
    for note in prediction.notes:
        yield Line(visible(said(note)), "dim", indent=4)


def _numbers(prediction: Prediction) -> Iterator[tuple[str, str]]:
    numbers = {
        "max_steps": prediction.max_steps,
        "steps per epoch": prediction.steps_per_epoch,
        "prompts per step": prediction.prompts_per_step,
        "completions per step": prediction.completions_per_step,
        "generation batch": prediction.generation_batch_size,
        "optimizer steps per generation": prediction.optimizer_steps_per_generation,
        "completions in all": prediction.completions,
        "tokens at most": prediction.tokens,
    }
    for label, value in numbers.items():
        if value is not None:
            yield label, f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _open(launch: Launch, assessment: Assessment, said: Translated) -> Iterator[Line]:
    """Missing inputs first, then unread parts."""
    for title, lines in (("missing", assessment.missing), ("not read", assessment.unresolved or launch.unresolved)):
        if not lines:
            continue
        yield from (Line(), Line(said(title), "dim", indent=2))
        shown = lines if len(lines) <= MAX_OPEN + 1 else lines[:MAX_OPEN]  # "and 1 more" would take a line as well
        yield from (Line(visible(said(line)), indent=4) for line in shown)
        if len(lines) > len(shown):
            more = said(f"and {len(lines) - len(shown)} more (all of them: --format json)")
            yield Line(more, "dim", indent=4)
