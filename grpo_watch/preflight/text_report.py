"""Renders an assessment as a few aligned lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.cells import set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpo_watch.engine.records import Scalar, Severity
from grpo_watch.frameworks.launch_rules import Prediction
from grpo_watch.frameworks.launches import Launch, launch_facts
from grpo_watch.preflight.findings import FINE, MISSING, Assessment, LaunchProblem, Suggestion, exit_code
from grpo_watch.report.words import say, sentence_words
from grpo_watch.safe_text import visible

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
MAX_SUGGESTIONS = 4
MAX_OPEN = 6
"""More lines of a kind than this are counted, not shown."""

Translated = Callable[[str], str]
"""A text of ours in the reader's language."""


def render(launch: Launch, assessment: Assessment, console: Console, language: str) -> None:
    """Print verdict, problems, nearest valid settings, prediction, and what was not known."""
    said = partial(sentence_words, language, part="launch")
    console.print(_headline(launch, assessment, said))
    for problem in assessment.problems:
        _put(console, *_problem(problem, language, said))
    if assessment.suggestions:
        console.print()
        _put(console, (_suggestions(launch, assessment.suggestions, said), 2))
    if assessment.prediction is not None:
        console.print()
        _put(console, *_prediction(assessment.prediction, said))
    _open(launch, assessment, console, said)


def _put(console: Console, *parts: tuple[Text | Table, int]) -> None:
    """Print each part with its indent."""
    for part, indent in parts:
        console.print(Padding(part, (0, 0, 0, indent), expand=False))


def _headline(launch: Launch, assessment: Assessment, said: Translated) -> Text:
    code = exit_code(assessment)
    refused = any(problem.severity is Severity.CRITICAL for problem in assessment.problems)
    word, style = ("WILL FAIL", "bold red") if refused else ("LOOK AGAIN", "bold yellow")
    if code in {FINE, MISSING}:
        word, style = ("OK", "bold green") if code == FINE else ("NOT SURE", "bold yellow")
    line = Text(said(word), style=style)
    line.append(f"  {visible(launch.text)}", style="bold")
    facts = [said(_framework(assessment))]
    for setting, one, many in ((launch.world_size, "process", "processes"), (launch.dataset_size, "row", "rows")):
        if setting is not None and isinstance(setting.value, int):
            facts.append(said(f"{setting.value:,} {one if setting.value == 1 else many}"))
    line.append("  " + " · ".join(facts), style="dim")
    return line


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


def _problem(problem: LaunchProblem, language: str, said: Translated) -> Iterator[tuple[Text, int]]:
    severity = problem.severity.value
    line = Text(f"{set_cell_size(say(language, severity), 8)}  ", style=STYLES[severity])
    line.append(problem.check, style="bold")
    if problem.where:
        line.append(f"  {visible(said(problem.where))}", style="dim")
    yield line, 2
    yield Text(visible(said(problem.message))), 12
    if problem.says and problem.says not in problem.message:
        yield Text(f"{said('it says')}{say(language, ': ')}{visible(problem.says)}", style="dim"), 12
    if problem.hint:
        yield Text(f"→ {visible(said(problem.hint))}"), 12


def _suggestions(launch: Launch, suggestions: Sequence[Suggestion], said: Translated) -> Table:
    """One row per suggestion: what changes from what to what, and what that gives."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column(said("nearest valid settings"), overflow="fold")
    table.add_column("")
    for number, suggestion in enumerate(suggestions[:MAX_SUGGESTIONS], 1):
        changes = Text("\n").join(_change(launch, suggestion, name, said) for name in suggestion.changes)
        table.add_row(str(number), changes, visible(said(suggestion.why)))
    return table


def _change(launch: Launch, suggestion: Suggestion, name: str, said: Translated) -> Text:
    given = launch.settings[name].value if name in launch.settings else None
    was = said(suggestion.was.get(name, "not given"))
    line = Text(f"{visible(name)} {_cell(given, absent=was)} → ")
    return line.append(_cell(suggestion.changes[name], absent=said("leave out")), style="bold")


def _cell(value: Scalar, absent: str) -> str:
    return absent if value is None else visible(str(value))


def _prediction(prediction: Prediction, said: Translated) -> Iterator[tuple[Text | Table, int]]:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in _numbers(prediction):
        table.add_row(said(name), value)
    yield Text(said("prediction"), style="dim"), 2
    if table.row_count:
        yield table, 4
    if prediction.formula:
        yield Text(visible(said(prediction.formula))), 4
    for note in prediction.notes:
        yield Text(visible(said(note)), style="dim"), 4


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


def _open(launch: Launch, assessment: Assessment, console: Console, said: Translated) -> None:
    """What was missing first, then what could not be read."""
    for title, lines in (("missing", assessment.missing), ("not read", assessment.unresolved or launch.unresolved)):
        if not lines:
            continue
        console.print()
        shown = lines if len(lines) <= MAX_OPEN + 1 else lines[:MAX_OPEN]  # "and 1 more" takes a line as well
        _put(console, (Text(said(title), style="dim"), 2), *((Text(visible(said(line))), 4) for line in shown))
        if len(lines) > len(shown):
            more = said(f"and {len(lines) - len(shown)} more (all of them: --format json)")
            _put(console, (Text(more, style="dim"), 4))
