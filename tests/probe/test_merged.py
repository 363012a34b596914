"""Models of tens of thousands of tensors: a line stays short, and any change of any tensor still shows."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import CheckpointDigest
from grpo_watch.probe import writing
from grpo_watch.probe.checksum import MODULUS, RADIX
from grpo_watch.probe.pieces import ParameterPiece
from grpo_watch.probe.writing import Journal, entries, value
from grpo_watch.sources.checkpoints.probe_source import ProbeSource

LAYERS, EXPERTS = 61, 320
ENTRIES = 511
"""Of 58,684 tensors, 115 in each."""


def tensor(elements: int, size: int = 2, dtype: str = "bfloat16") -> Any:
    return SimpleNamespace(dtype=f"torch.{dtype}", numel=lambda: elements, element_size=lambda: size)


def piece(name: str, shape: tuple[int, ...] = (4, 8), parts: int = 1, held: int | None = None) -> ParameterPiece:
    return ParameterPiece(name, tensor(prod(shape) if held is None else held), shape, trainable=True, parts=parts)


@cache
def mixture(layers: int = LAYERS, experts: int = EXPERTS) -> list[ParameterPiece]:
    """The names of a mixture of experts as large as DeepSeek's, and a little larger: 58,684 tensors."""
    found = [piece("model.embed_tokens.weight")]
    for layer in range(layers):
        at = f"model.layers.{layer}"
        found += [piece(f"{at}.self_attn.o_proj.weight"), piece(f"{at}.mlp.gate.weight")]
        found += [
            piece(f"{at}.mlp.experts.{expert}.{matrix}.weight", (8, 4) if matrix == "down_proj" else (4, 8))
            for expert in range(experts)
            for matrix in ("gate_proj", "up_proj", "down_proj")
        ]
    return [*found, piece("lm_head.weight")]


def test_few_tensors_are_listed_one_by_one() -> None:
    found = entries(mixture(2, 4))
    assert [entry.members for entry in found] == [(at,) for at in range(30)]
    assert found[3].name == "model.layers.0.mlp.experts.0.gate_proj.weight"


@pytest.mark.parametrize("most", [1, 7, 100])
def test_neighbours_are_put_together(most: int) -> None:
    """Neighbours go together until there are few enough; each tensor is in one entry."""
    pieces = [piece(f"blocks.{number}.weight", (number % 3 + 1, 8)) for number in range(250)]
    found = entries(pieces, most)
    assert len(found) <= most
    assert sorted(at for entry in found for at in entry.members) == list(range(250))
    assert len({entry.name for entry in found}) == len(found)
    assert sum(prod(entry.shape) for entry in found) == sum(prod(each.shape) for each in pieces)


def test_what_is_placed_otherwise_stays_apart() -> None:
    """Shards add up over processes, so an entry is all of one kind, and as long wherever others are held too."""
    pieces = [piece(f"l.{number}.w", parts=1 + number % 2) for number in range(10)]
    assert [{pieces[at].parts for at in entry.members} for entry in entries(pieces, 1)] == [{1}, {2}]


@given(st.lists(st.integers(0, MODULUS - 1), min_size=6, max_size=6), st.integers(0, 5), st.integers(1, MODULUS - 1))
def test_a_change_of_one_tensor_changes_the_entry(sums: list[int], which: int, change: int) -> None:
    pieces = [piece(f"l.{number}.w") for number in range(6)]
    (entry,) = entries(pieces, 1)
    before = value(entry, pieces, sums)
    sums[which] = (sums[which] + change) % MODULUS
    assert value(entry, pieces, sums) != before


def test_an_entry_is_the_checksum_of_tensors_one_behind_the_other() -> None:
    """Each lies behind those before it, in whole words: 3 elements of 2 bytes take two."""
    pieces = [piece("l.0.w", (3,)), piece("l.1.w", (4,)), piece("l.2.w", (1,))]
    (entry,) = entries(pieces, 1)
    assert value(entry, pieces, [5, 7, 11]) == (5 + 7 * RADIX**2 + 11 * RADIX**4) % MODULUS


def test_shards_of_an_entry_add_up() -> None:
    """Two processes, of which the second holds nothing of the last tensor: its part has no checksum there."""
    whole = [piece("l.0.w", (4,), 2), piece("l.1.w", (4,), 2)]
    none = [piece("l.0.w", (4,), 2, 0), piece("l.1.w", (4,), 2, 0)]
    (entry,) = entries(whole, 1)
    together = (value(entry, whole, [5, 7]) or 0) + (value(entry, whole, [100, 200]) or 0)
    assert together % MODULUS == value(entry, whole, [105, 207])
    assert value(entries(none, 1)[0], none, [0, 0]) is None


@pytest.fixture
def sixty_thousand(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Checksums of the mixture, without its tensors; the list holds what is added to the last one."""
    pieces, more = mixture(), [0]

    def taken(_pieces: object, most: int) -> object:
        sums = [number * RADIX % MODULUS for number in range(len(pieces))]
        sums[-1] += more[0]
        found = {}
        for entry in entries(pieces, most):
            checksum = f"{value(entry, pieces, sums) or 0:016x}"
            found[entry.name] = (entry.dtype, list(entry.shape), checksum, 0, 1)
        return found, ""

    monkeypatch.setattr(writing, "checksums", taken)
    return more


@pytest.mark.slow
def test_the_file_stays_small(tmp_path: Path, sixty_thousand: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line takes 55 kB, and below 300 bytes once the file is large; a standstill shows before and after."""
    monkeypatch.setattr(writing, "FILE_MB", 1)
    journal, what = Journal(tmp_path, "grpo-watch-probe-0.jsonl"), {"rank": 0, "ranks": 1, "writers": 1}
    sizes: list[int] = []
    for step in range(10, 90, 10):
        sixty_thousand[0] += step in {20, 60}
        if step == 20:  # room for two more lines
            with journal.path.open("a") as file:
                file.write("\n" * (1_000_000 - journal.size() - 2 * sizes[0] + 100))
        before = journal.size()
        writing.write_weights(journal, None, "policy", {"step": step, **what})
        sizes.append(journal.size() - before)
    assert [size > 300 for size in sizes] == [True] * 3 + [False] * 5
    assert max(sizes) < 55_000
    source = ProbeSource("probe", tmp_path, [tmp_path])
    found = [item for item in (*source.poll(None), *source.finish()) if isinstance(item, CheckpointDigest)]
    assert [(digest.step, len(digest.tensors)) for digest in found] == [
        *((step, ENTRIES) for step in (10, 20, 30)),
        *((step, 1) for step in (40, 50, 60, 70, 80)),
    ]
    sums = [{name: each.checksum for name, each in digest.tensors.items()} for digest in found]
    assert [earlier == after for earlier, after in pairwise(sums)] == [False, True, False, True, False, True, True]


@pytest.mark.slow
def test_a_line_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """One entry per tensor, 58,684 of them: 5 MB."""
    tensors = {each.name: ["bfloat16", list(each.shape), "0123456789abcdef", 0, 1] for each in mixture()}
    line = {"grpo_watch": "probe/1", "kind": "weights", "of": "policy", "step": 1, "rank": 0, "tensors": tensors}
    (tmp_path / "grpo-watch-probe-0.jsonl").write_text(json.dumps(line) + "\n")
    source = ProbeSource("probe", tmp_path, [tmp_path])
    (digest,) = [item for item in (*source.poll(None), *source.finish()) if isinstance(item, CheckpointDigest)]
    assert len(digest.tensors) == 58_684
