"""Tables of completions that TRL prints to the console."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.engine.records import CompletionSummary, RawRow
from grpo_watch.sources.console.source import ConsoleSource

WIDTH = 24


def panel(step: int, rows: Sequence[tuple[str, str]]) -> str:
    """A table as ``rich`` draws it: texts wrapped to their column, a rule between rows, a panel around it."""
    edge = "\u2500" * 20
    lines = [f"\u256d{edge} Step {step} {edge}\u256e", f"\u2502 \u250f{edge}\u2513 \u2502"]
    lines.append("\u2502 \u2503 Prompt \u2503 Completion \u2503 reward \u2503 Advantage \u2503 \u2502")
    lines.append(f"\u2502 \u2521{edge}\u2529 \u2502")
    for number, (prompt, text) in enumerate(rows):
        pieces = [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)] or [""]
        for place, piece in enumerate(pieces):
            shown = (prompt, "0.50", "0.00") if place == 0 else ("", "", "")
            cells = " \u2502 ".join((f"{shown[0]:8}", f"{piece:{WIDTH}}", f"{shown[1]:6}", f"{shown[2]:6}"))
            lines.append(f"\u2502 \u2502 {cells} \u2502 \u2502")
        last = number == len(rows) - 1
        lines.append(f"\u2502 {chr(0x2514) if last else chr(0x251C)}{edge}\u2518 \u2502")
    return "\n".join([*lines, f"\u2570{edge}{edge}\u256f"]) + "\n"


def log(rows_of_step: Sequence[Sequence[tuple[str, str]]]) -> str:
    rows = (
        f"{{'loss': 0.01, 'grad_norm': 0.3, 'learning_rate': 1e-06, 'reward': 0.5, 'reward_std': 0.2, 'kl': 0.001, "
        f"'epoch': {n / 100}}}\n"
        for n in range(1, len(rows_of_step) + 1)
    )
    tables = (panel(n, rows) for n, rows in enumerate(rows_of_step, 1))
    bars = (f"\r {n}%|#  | {n}/100 [00:01<00:09,  1.00it/s]" for n in range(1, len(rows_of_step) + 1))
    return "".join(f"{bar}{table}{row}" for bar, table, row in zip(bars, tables, rows, strict=True))


def batch(step: int, *, copies: bool) -> list[tuple[str, str]]:
    """Two prompts with eight completions each; with copies the second four repeat the first four."""
    return [
        (f"p{step}{group}", f"the {group} answer to {step} is that of sample {n % 4 if copies else n}, which is long")
        for group in "ab"
        for n in range(8)
    ]


def read(path: Path) -> list[CompletionSummary]:
    source = ConsoleSource("log", path, [path.parent], tables=True)
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, CompletionSummary)]


def test_groups_are_the_rows_of_a_prompt(tmp_path: Path) -> None:
    """A prompt that is shown once is no group."""
    path = tmp_path / "train.log"
    path.write_text(log([[*batch(1, copies=True), ("alone", "once")], batch(2, copies=False)]), encoding="utf-8")
    first, second = read(path)
    assert (first.step, second.step) == (1, 2)
    assert [group.pattern for group in first.groups] == [(0, 1, 2, 3, 0, 1, 2, 3)] * 2
    assert [(group.size, group.unique, group.rewards) for group in second.groups] == [(8, 8, {})] * 2


def test_a_table_that_is_printed_again_is_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(panel(1, batch(1, copies=False)) * 2, encoding="utf-8")
    assert len(read(path)) == 1


def test_other_panels_and_cut_ones_give_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    table = panel(1, batch(1, copies=False))
    path.write_text(
        table.replace("Prompt", "Metric") + "\n".join(table.splitlines()[:9]) + "\ntext\n", encoding="utf-8"
    )
    assert read(path) == []


@pytest.mark.parametrize("cut", [0.2, 0.45, 0.5, 0.9])
def test_a_reader_goes_on_in_the_middle_of_a_table(cut: float, tmp_path: Path) -> None:
    whole = log([batch(n, copies=False) for n in range(1, 5)]).encode()
    path = tmp_path / "train.log"
    path.write_bytes(whole[: int(cut * len(whole))])
    first = ConsoleSource("log", path, [tmp_path], tables=True)
    items = list(first.poll(None))
    path.write_bytes(whole)
    second = ConsoleSource("log", path, [tmp_path], cursor=first.cursor(), tables=True)
    items += [*second.poll(None), *second.finish()]
    assert [item.step for item in items if isinstance(item, CompletionSummary)] == [1, 2, 3, 4]
    assert [item.step for item in items if isinstance(item, RawRow)] == [1, 2, 3, 4]


@pytest.mark.parametrize("copies", [True, False])
def test_copies_inside_groups_are_found(*, copies: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = log([batch(n, copies=copies) for n in range(1, 9)])
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    run_cli(["check", str(tmp_path), "--format", "json", "--fail-on", "never"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert ("duplicate-completions" in {finding["rule"] for finding in run["findings"]}) is copies
    assert run["rows"] == 8
