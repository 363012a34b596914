"""How lines for a terminal take its columns."""

from __future__ import annotations

import pytest

from grpo_watch.report.lines import Line, aligned, clipped, columns, laid_out


@pytest.mark.parametrize(
    ("text", "taken"), [("", 0), ("step 3", 6), ("奖励，", 6), ("é", 1), ("e\N{COMBINING ACUTE ACCENT}", 1), ("→", 1)]
)
def test_columns_of_a_text(text: str, taken: int) -> None:
    assert columns(text) == taken


def test_lines_break_at_words_and_inside_longer_ones() -> None:
    words = Line("the reward fell", indent=2)
    assert laid_out([words], 12) == "  the reward\n  fell\n"
    assert laid_out([words], 17) == "  the reward fell\n"
    assert laid_out([Line("at /data/runs/one now")], 8) == "at /data\n/runs/on\ne now\n"
    assert laid_out([Line("奖励不变", indent=1)], 6) == " 奖励\n 不变\n"
    assert laid_out([Line(), Line(indent=4)], 80) == "\n\n"


def test_a_hanging_indent_needs_room() -> None:
    line = Line("- the learning rate is zero", hang=2)
    assert laid_out([line], 24) == "- the learning rate is\n  zero\n"
    assert laid_out([line], 20) == "- the learning rate\nis zero\n"


def test_colours_end_with_each_line_and_blanks_have_none() -> None:
    line = Line("frozen ", "bold red").append("since step 3", "dim")
    assert laid_out([line], 12, color=True) == (
        "\x1b[1;31mfrozen \x1b[0m\x1b[1;31;2msince\x1b[0m\n\x1b[1;31;2mstep 3\x1b[0m\n"
    )
    assert laid_out([line], 12) == "frozen since\nstep 3\n"


@pytest.mark.parametrize(
    ("text", "width", "shown"), [("abc", 3, "abc"), ("abcd", 3, "abc"), ("结论", 3, "结"), ("a", 0, "")]
)
def test_what_is_clipped_fits(text: str, width: int, shown: str) -> None:
    assert clipped(text, width) == shown


def test_cells_are_below_each_other() -> None:
    rows = [["run", Line("结论", "dim"), "since"], ["a", "healthy", "-"]]
    assert laid_out(aligned(rows, indent=1), 80) == " run  结论     since\n a    healthy  -\n"
    assert list(aligned([])) == []
