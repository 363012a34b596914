"""What trainers print of their training set and processes becomes settings; what counts something else does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import Item, RawRow, RunConfig
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.settings.printed_config import PrintedSizes, printed_sizes

SWIFT = """[INFO:swift] train_dataset: Dataset({
    features: ['messages', 'solution', 'dataset'],
    num_rows: 64
})
[INFO:swift] val_dataset: Dataset({
    features: ['messages', 'solution', 'dataset'],
    num_rows: 8
})
"""
TRANSFORMERS = """***** Running training *****
  Num examples = 7,473
  Num Epochs = 1
  Instantaneous batch size per device = 2
"""
EVALUATION = """***** Running Evaluation *****
  Num examples = 500
  Batch size = 8
"""
UNSLOTH = """==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 2
   \\\\   /|    Num examples = 12,728 | Num Epochs = 1 | Total steps = 100
O^O/ \\_/ \\    Batch size per device = 4 | Gradient accumulation steps = 1
\\        /    Data Parallel GPUs = 1 | Total batch size (4 x 1 x 1) = 4
"""
OLD_UNSLOTH = """==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 1
   \\\\   /|    Num examples = 7,473 | Num Epochs = 1
"""
STREAM = "  Num examples = 800\n  Num Epochs = 9,223,372,036,854,775,807\n"
ROW = "{'loss': 0.1, 'reward': 0.5, 'kl': 0.001, 'step': 5}\n"


def items_of(folder: Path, text: str) -> list[Item]:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    source = ConsoleSource("train.log", path, [folder])
    items = [*source.poll(None), *source.finish()]
    assert source.stats.skipped == {}
    return items


def settings(items: list[Item]) -> dict[str, object]:
    configs = [item for item in items if isinstance(item, RunConfig)]
    assert {setting.origin for config in configs for setting in config.settings.values()} <= {"printed in the log"}
    return {name: setting.value for config in configs for name, setting in config.settings.items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SWIFT, {"dataset_size": 64}),
        ("[INFO:swift] rank: 0, local_rank: 0, world_size: 4, local_world_size: 2\n", {"world_size": 4}),
        (TRANSFORMERS, {"dataset_size": 7473}),
        (TRANSFORMERS + EVALUATION, {"dataset_size": 7473}),
        (
            "[INFO|trainer.py:2405] 2026-01-02 03:04:05,678 >>   Num examples = 500\n  Num Epochs = 3\n",
            {"dataset_size": 500},
        ),
        (UNSLOTH, {"dataset_size": 12728, "world_size": 1}),
        ("dataset len: 21836\nfilter dataset len: 9120\n", {"rows_before_filter": 21836, "rows_after_filter": 9120}),
        (OLD_UNSLOTH, {"dataset_size": 7473, "world_size": 1}),
    ],
)
def test_sizes_become_settings(text: str, found: dict[str, object], tmp_path: Path) -> None:
    items = items_of(tmp_path, text + ROW)
    assert settings(items) == found
    assert [item.step for item in items if isinstance(item, RawRow)] == [5]


@pytest.mark.parametrize(
    "text",
    [
        EVALUATION,
        STREAM,
        "[INFO:swift] val_dataset: Dataset({\n    features: ['messages'],\n    num_rows: 8\n})\n",
        "[INFO:swift] train_dataset: IterableDataset({\n    features: ['messages'],\n    num_shards: 1\n})\n",
        "[INFO:swift] train_dataset: Dataset({\n" + ROW * 8 + "    num_rows: 64\n",
        "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 4\n",
        "  Num examples = 0\n  Num Epochs = 1\n",
    ],
)
def test_numbers_that_count_something_else_are_left_out(text: str, tmp_path: Path) -> None:
    """Evaluations, streams (a size made up from max_steps), visible GPUs."""
    assert settings(items_of(tmp_path, text + ROW)) == {}


@pytest.mark.parametrize("text", [SWIFT, TRANSFORMERS])
def test_a_restart_between_any_two_lines(text: str, tmp_path: Path) -> None:
    """A cursor taken before the print is complete stands before it."""
    whole = settings(items_of(tmp_path, text + ROW))
    path, lines = tmp_path / "train.log", (text + ROW).splitlines(keepends=True)
    for cut in range(1, len(lines)):
        path.write_text("".join(lines[:cut]), encoding="utf-8")
        first = ConsoleSource("train.log", path, [tmp_path])
        before = list(first.poll(None))
        cursor = first.cursor()
        first.close()
        path.write_text("".join(lines), encoding="utf-8")
        second = ConsoleSource("train.log", path, [tmp_path], cursor=cursor)
        after = [*second.poll(None), *second.finish()]
        assert settings([*before, *after]) == whole
        assert sum("dataset_size" in item.settings for item in [*before, *after] if isinstance(item, RunConfig)) == 1


def test_a_restart_between_the_two_items_of_one_line(tmp_path: Path) -> None:
    """The line names the framework and its processes; a reader that stops between them goes on with the second."""
    path = tmp_path / "train.log"
    path.write_text("[INFO:swift] rank: 0, local_rank: 0, world_size: 4, local_world_size: 2\n" + ROW, encoding="utf-8")
    first = ConsoleSource("train.log", path, [tmp_path])
    reading = first.poll(None)
    before = [next(reading)]
    cursor = first.cursor()
    first.close()
    second = ConsoleSource("train.log", path, [tmp_path], cursor=cursor)
    items = [*before, *second.poll(None), *second.finish()]
    configs = [item for item in items if isinstance(item, RunConfig)]
    assert sorted(str(config.framework) for config in configs) == ["None", "ms-swift"]
    assert settings(items) == {"world_size": 4}


@given(st.lists(st.sampled_from([b"  Num examples = 5", b"x", b"train_dataset: Dataset({"]), max_size=12))
def test_it_never_waits_long(lines: list[bytes]) -> None:
    """Five lines at most, whatever they are, so that what a reader holds back stays small."""
    sizes = PrintedSizes()
    sizes.begin(lines[0] if lines else b"")
    for _ in range(5):
        if sizes.open:
            assert sizes.feed(b"x") is None
    assert not sizes.open


@given(st.binary(max_size=200))
def test_any_line_is_taken(line: bytes) -> None:
    found = printed_sizes(line + b" | ") or {}
    assert all(setting.value for setting in found.values())
