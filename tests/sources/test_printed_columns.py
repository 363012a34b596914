"""Tables that are printed as text: data frames and Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.records import RawRow
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.discovery.discover import Discoverer

FRAME = "     step    loss  reward      kl\n" + "".join(
    f"{n:2d}    {10 * n}  0.1000  0.5{n}00  0.0100\n" for n in range(1, 5)
)
PLAIN = "Step   Loss   Reward   KL\n" + "".join(f"{10 * n}   0.1   0.5{n}   0.01\n" for n in range(1, 5))
MARKDOWN = "# Model\n\n| Step | Training Loss | reward | kl |\n|---|---|---|---|\n" + "".join(
    f"| {10 * n} | 0.1 | 0.5{n} | 0.01 |\n" for n in range(1, 5)
)


def rows_of(path: Path) -> list[RawRow]:
    source = ConsoleSource("log", path, [path.parent])
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)]


@pytest.mark.parametrize("text", [FRAME, PLAIN, MARKDOWN])
def test_rows_of_a_printed_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(text)
    rows = rows_of(path)
    assert [row.step for row in rows] == [10, 20, 30, 40]
    assert [row.values.get("reward", row.values.get("Reward")) for row in rows] == [0.51, 0.52, 0.53, 0.54]


def test_a_model_card_with_a_table_of_rewards_is_a_run(tmp_path: Path) -> None:
    """One whose table shows no reward is none."""
    (tmp_path / "README.md").write_text(MARKDOWN)
    (found,) = Discoverer().discover(tmp_path)
    assert [channel.path.name for channel in found.channels if channel.what.value == "console"] == ["README.md"]
    (tmp_path / "README.md").write_text(MARKDOWN.replace("| reward |", "| epoch |"))
    assert Discoverer().discover(tmp_path) == []


def test_other_tables_give_no_row(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("Sample   Reward   Length\n" + "1   0.5   100\n" * 5)
    assert rows_of(path) == []
