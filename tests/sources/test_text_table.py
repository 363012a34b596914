"""CSV files and the HTML tables of notebook cells become raw rows, at any point of their growth."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import ChannelKind, EventKind, Item, RunConfig, RunEvent
from grpo_watch.sources.base import Skip, Source
from grpo_watch.sources.console.notebook import HtmlTableSource
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.discovery.sniff import Sniffer
from grpo_watch.sources.rows.tables import TableSource, keys_of, row_of
from tests.support.channel import rows

HEADER = "Step,Training Loss,reward,reward_std,completion_length,kl,rewards / check\n"
FIRST = "1,0.000000,-1.250000,0.500000,200.000000,0.000000,0.250000\n"
SECOND = "2,0.000100,0.750000,0.250000,210.500000,0.000013,0.750000\n"


def write(path: Path, text: str, mode: str = "w") -> Path:
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)
    return path


def everything(source: Source) -> list[Item]:
    return [*source.poll(1.0), *source.finish()]


def html(*lines: tuple[str, ...], bar: str = "") -> str:
    """A cell's output as notebooks save it: a bar, then a table that is redrawn with every row."""
    head = "".join(f"<th>{cell}</th>\n" for cell in ("Step", "Training Loss", "reward", "kl"))
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>\n" for line in lines)
    return (
        f"<div><progress value='2' max='9'></progress> {bar}</div>\n"
        f'<table border="1"><thead><tr style="x">{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def test_a_csv_of_a_notebook(tmp_path: Path) -> None:
    """Headers become the keys of the logs; six decimals are a resolution; only Unsloth shows such columns."""
    source = TableSource("t.csv", write(tmp_path / "t.csv", HEADER + FIRST + SECOND), [tmp_path])
    items = everything(source)
    assert [item.framework for item in items if isinstance(item, RunConfig)] == ["unsloth"]
    first, second = rows(items)
    assert (first.step, first.kind, first.resolution) == (1, ChannelKind.JSONL, 1e-6)
    assert second.values == {
        "loss": 0.0001,
        "reward": 0.75,
        "reward_std": 0.25,
        "completion_length": 210.5,
        "kl": 0.000013,
        "rewards/check": 0.75,
    }
    assert source.stats.skipped == {}


def test_it_is_read_while_it_grows(tmp_path: Path) -> None:
    """Half a line waits; a second reader goes on from the cursor under the same header."""
    path = write(tmp_path / "t.csv", HEADER + FIRST + SECOND[:12])
    source = TableSource("t.csv", path, [tmp_path])
    assert [row.step for row in rows(list(source.poll(1.0)))] == [1]
    cursor = source.cursor()
    source.close()
    write(path, SECOND[12:], "a")
    successor = TableSource("t.csv", path, [tmp_path], cursor=cursor)
    assert [(row.step, row.values["kl"]) for row in rows(everything(successor))] == [(2, 0.000013)]


def test_a_file_that_starts_over_has_a_header_of_its_own(tmp_path: Path) -> None:
    """A job started over the same file writes other columns; a header repeated by an appending job is no row."""
    path = write(tmp_path / "t.csv", HEADER + FIRST + HEADER + SECOND)
    source = TableSource("t.csv", path, [tmp_path])
    assert [row.step for row in rows(list(source.poll(1.0)))] == [1, 2]
    write(path, "step;reward;note\n3;0.5;fine\n")
    assert [(row.step, row.values) for row in rows(list(source.poll(1.0)))] == [(3, {"reward": 0.5})]
    assert source.stats.skipped == {}


def test_what_is_no_row_is_counted_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "step,reward\n1,0.5,9\n2\nlast,0.5\n4,\n5,0.5\n")
    source = TableSource("t.csv", path, [tmp_path])
    assert [row.step for row in rows(everything(source))] == [5]
    assert source.stats.skipped == {Skip.NOT_A_ROW: 3, Skip.NO_STEP: 1}
    assert source.stats.first_bad == "not-a-row: line 2: 3 cells under 2 headers"


def test_pandas_writes_steps_as_floats_and_gaps_as_nothing() -> None:
    """``12.0`` is step 12; an empty cell is a metric that was not logged, never 0; nan stays one."""
    row = row_of(keys_of(["step", "reward", "kl", "entropy"], {}), ["12.0", "0.5", "", "nan"])
    assert row.step == 12
    assert set(row.values) == {"reward", "entropy"}
    assert row.values["reward"] == 0.5
    assert str(row.values["entropy"]) == "nan"


@pytest.mark.parametrize(
    ("cells", "resolution"),
    [
        (["0.000001", "0.500000", "12.000000"], 1e-6),
        (["0.001", "1.500", "0.250"], 1e-3),
        (["0.5", "0.25", "0.125"], None),  # floats in full
        (["0.500", "0.250", "1e-07"], None),  # an exponent shows any number
        (["0.500", "0.250", "3"], None),  # two are too few to tell
    ],
)
def test_a_rounded_row_is_recognised_by_its_decimals(cells: list[str], resolution: float | None) -> None:
    assert row_of(["a", "b", "c"], cells).resolution == resolution


def test_the_html_of_a_cell_gives_each_row_once(tmp_path: Path) -> None:
    """The notebook rewrites the file with every row; the bar tells the total, and the end."""
    one, two = ("1", "0.000100", "0.500000", "0.000000"), ("2", "No log", "0.750000", "0.000200")
    path = write(tmp_path / "cell.html", html(one, bar="[2/9 00:10 &lt; 01:00, 0.1 it/s, Epoch 0.1/1]"))
    source = HtmlTableSource("cell.html", path, [tmp_path])
    (first,) = rows(list(source.poll(1.0)))
    assert (first.step, first.max_steps, first.values["reward"]) == (1, 9, 0.5)
    assert list(source.poll(2.0)) == []
    cursor = source.cursor()
    write(path, html(one, two, bar="[9/9 02:43:09, Epoch 1/1]"))
    items = everything(HtmlTableSource("cell.html", path, [tmp_path], cursor=cursor))
    assert [(row.step, row.values) for row in rows(items)] == [(2, {"reward": 0.75, "kl": 0.0002})]
    assert [item.kind for item in items if isinstance(item, RunEvent)] == [EventKind.FINISHED]


def test_another_run_of_the_cell_begins_again(tmp_path: Path) -> None:
    path = write(tmp_path / "cell.html", html(("1", "0.1", "0.5", "0"), ("2", "0.1", "0.5", "0")))
    source = HtmlTableSource("cell.html", path, [tmp_path])
    assert len(rows(list(source.poll(1.0)))) == 2
    write(path, html(("1", "0.1", "0.25", "0"), ("2", "0.2", "0.5", "0"), ("3", "0.2", "0.5", "0")))
    assert [row.step for row in rows(list(source.poll(2.0)))] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("metrics.csv", HEADER + FIRST, ChannelContent.TABLE),
        ("metrics.tsv", "global_step\treward\n1\t0.5\n", ChannelContent.TABLE),
        ("cell.html", html(("1", "0.1", "0.5", "0")), ChannelContent.TABLE),
        ("report.html", "<table><tr><th>Stage</th></tr></table>", None),
        ("prompts.csv", "question,answer\nwhy,so\n", None),
        ("scores.csv", "name,reward\na,0.5\n", None),  # no step
        ("empty.csv", "", None),
    ],
)
def test_only_tables_of_training_are_taken(tmp_path: Path, name: str, text: str, what: ChannelContent | None) -> None:
    """Datasets and reports lie in run folders too."""
    assert Sniffer().sniff(write(tmp_path / name, text), [tmp_path]).what is what


def test_a_folder_with_a_cells_output_is_a_run(tmp_path: Path) -> None:
    write(tmp_path / "cell.html", html(("1", "0.1", "0.5", "0")))
    (run,) = discover(tmp_path)
    assert [channel.what for channel in run.channels if channel.what is not ChannelContent.RUN_CONFIG] == [
        ChannelContent.TABLE
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(body=st.text(max_size=200), cut=st.integers(0, 200))
def test_no_text_raises_and_pieces_give_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, body: str, cut: int
) -> None:
    """Whatever stands under the header: read in two pieces it gives what it gives at once."""
    folder = tmp_path_factory.mktemp("table")
    data = ("step,reward,kl\n1,0.5,0.1\n" + body + "\n2,0.5,0.1\n").encode("utf-8", "replace")
    path = folder / "t.csv"
    path.write_bytes(data)
    whole = rows(everything(TableSource("t.csv", path, [folder])))
    path.write_bytes(data[: 15 + cut])
    growing = TableSource("t.csv", path, [folder])
    found = rows(list(growing.poll(None)))
    with path.open("ab") as file:
        file.write(data[15 + cut :])
    found += rows([*growing.poll(None), *growing.finish()])
    assert repr([(row.step, row.values) for row in found]) == repr([(row.step, row.values) for row in whole])


def test_a_table_pasted_as_markdown(tmp_path: Path) -> None:
    """As people put a notebook's table into an issue, in a text file; the line under the header is no row."""
    text = "Step | Training Loss | reward | kl\n-- | -- | -- | --\n1 | 0.000000 | -1.500000 | 0.000010\n"
    path = write(tmp_path / "pasted.txt", text + "| 2 | 0.000100 | 0.500000 | 0.000020 |\n")
    assert Sniffer().sniff(path, [tmp_path]).what is ChannelContent.TABLE
    source = TableSource(path.name, path, [tmp_path])
    found = rows(everything(source))
    assert [(row.step, row.values["reward"], row.resolution) for row in found] == [(1, -1.5, 1e-6), (2, 0.5, 1e-6)]
    assert source.stats.skipped == {}


def test_the_one_metric_of_a_tensorboard_export_is_named_by_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "run-a-tag-train_reward.csv", "Wall time,Step,Value\n1758600000.5,10,0.25\n")
    (row,) = rows(everything(TableSource(path.name, path, [tmp_path])))
    assert (row.step, row.values) == (10, {"train_reward": 0.25})


def test_rows_without_a_step_are_given_to_be_counted(tmp_path: Path) -> None:
    """A reward beside a loss is a row of training; a reward beside a length may be a completion."""
    path = write(tmp_path / "m.csv", "mean_reward,loss\n0.25,0.1\n0.5,0.1\n")
    assert [row.step for row in rows(everything(TableSource("m.csv", path, [tmp_path])))] == [None, None]
    path = write(tmp_path / "samples.csv", "reward,length\n0.25,100\n0.5,200\n")
    assert rows(everything(TableSource("samples.csv", path, [tmp_path]))) == []
    assert Sniffer().sniff(path, [tmp_path]).what is None


def test_the_index_of_pandas_counts_where_no_column_does(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", ",mean_reward,loss\n0,0.25,0.1\n1,0.5,0.1\n")
    assert [row.step for row in rows(everything(TableSource("m.csv", path, [tmp_path])))] == [0, 1]
