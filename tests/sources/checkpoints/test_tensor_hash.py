"""Safetensors files become exact checksums; a broken one never gives more than a TensorFileError."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors import numpy as library

from grpo_watch.errors import ChangedWhileReadError, TensorFileError
from grpo_watch.sources.checkpoints.extents import human
from grpo_watch.sources.checkpoints.tensor_hash import CHUNK, digest_file
from grpo_watch.sources.checkpoints.tensor_layout import read_header
from tests.support.tensors import digest, refusal

NAN_BF16, INF_BF16, ONE_BF16 = 0x7FC0, 0xFF80, 0x3F80


def raw_file(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_round_trip_against_the_library(tmp_path: Path) -> None:
    """Checksums are those of the bytes that the safetensors library reads back."""
    random = np.random.default_rng(7)
    tensors = {
        "w": random.standard_normal((3, 5)).astype(np.float32),
        "h": random.standard_normal((4,)).astype(np.float16),
        "d": random.standard_normal((2, 2)),
        "i": np.arange(6, dtype=np.int64),
        "b": np.array([True, False]),
        "scalar": np.array(2.5, dtype=np.float32),
    }
    path = tmp_path / "model.safetensors"
    library.save_file(tensors, path, metadata={"format": "pt"})
    found = digest(path)
    loaded = library.load_file(path)
    assert found.keys() == loaded.keys() == tensors.keys()
    for name, array in loaded.items():
        assert found[name].checksum == xxhash.xxh3_128_hexdigest(array.tobytes())
        assert found[name].shape == array.shape
        assert not found[name].zero
    assert {name: one.dtype for name, one in found.items()} == {
        "w": "F32",
        "h": "F16",
        "d": "F64",
        "i": "I64",
        "b": "BOOL",
        "scalar": "F32",
    }


def test_one_changed_bit_changes_one_checksum(tmp_path: Path) -> None:
    before = {name: np.full(1000, 0.02, np.float32) for name in ("a", "b")}
    after = {name: array.copy() for name, array in before.items()}
    after["b"].view(np.uint32)[999] ^= 1
    library.save_file(before, tmp_path / "1.safetensors")
    library.save_file(after, tmp_path / "2.safetensors")
    first, second = digest(tmp_path / "1.safetensors"), digest(tmp_path / "2.safetensors")
    assert [name for name in first if first[name] != second[name]] == ["b"]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.data())
def test_tensors_of_any_size_and_place_read_either_way(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Small and large ones, also where elements begin at odd bytes: the bytes, zeros and NaNs that were written."""
    kinds = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "U8": np.uint8}
    sizes = st.sampled_from([0, 1, 3, 1000, CHUNK // 2 - 1, CHUNK, 2 * CHUNK + 5])
    header: dict[str, Any] = {"__metadata__": {"pad": "x" * data.draw(st.integers(0, 9))}}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    at = 0
    for number in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(sorted(kinds)))
        array = np.full(data.draw(sizes), data.draw(st.sampled_from([0, 1, 3])), kinds[kind])
        if len(array) and kind != "U8" and data.draw(st.booleans()):
            array[data.draw(st.integers(0, len(array) - 1))] = np.nan
        header[f"t{number}"] = entry(kind, [len(array)], at, at := at + array.nbytes)
        arrays[f"t{number}"] = array
    raw = b"".join(array.tobytes() for array in arrays.values())
    path = raw_file(tmp_path_factory.mktemp("any") / "m.safetensors", header, raw)
    expected = {
        name: (xxhash.xxh3_128_hexdigest(one.tobytes()), broken(one), blank(one)) for name, one in arrays.items()
    }
    found = digest(path)
    assert {name: (one.checksum, one.nonfinite, one.zero) for name, one in found.items()} == expected


@pytest.mark.parametrize("shift", range(8))
def test_elements_at_odd_bytes_are_whole_where_one_piece_of_the_file_ends(tmp_path: Path, shift: int) -> None:
    """Headers of safetensors up to 0.3.0, and of MLX, end anywhere. Halves of two neighbours may look like NaN."""
    array = np.random.default_rng(5).standard_normal(CHUNK).astype(np.float32)
    header = json.dumps({"a": entry("F32", [len(array)], 0, array.nbytes)}).encode()
    header += b" " * ((shift - len(header)) % 8)
    path = raw_file(tmp_path / "m.safetensors", header, array.tobytes())
    found = digest(path)["a"]
    assert (found.checksum, found.nonfinite) == (xxhash.xxh3_128_hexdigest(array.tobytes()), 0)


def broken(array: np.ndarray[Any, Any]) -> int:
    return int(np.count_nonzero(~np.isfinite(array)))


def blank(array: np.ndarray[Any, Any]) -> bool:
    return bool(len(array)) and not array.any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_non_finite_elements_are_counted(tmp_path: Path, dtype: type[Any]) -> None:
    array = np.array([1.0, np.nan, -np.inf, np.inf, 0.0, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    library.save_file({"x": array, "y": array[:1]}, tmp_path / "m.safetensors")
    found = digest(tmp_path / "m.safetensors")
    assert (found["x"].nonfinite, found["y"].nonfinite) == (3, 0)


def test_non_finite_bfloat16_by_its_bits(tmp_path: Path) -> None:
    bits = np.array([ONE_BF16, NAN_BF16, INF_BF16, 0x7F7F, 0x0001], "<u2")
    path = raw_file(tmp_path / "m.safetensors", {"x": entry("BF16", [5], 0, 10)}, bits.tobytes())
    assert digest(path)["x"].nonfinite == 2


def test_non_finite_elements_in_any_chunk_are_found(tmp_path: Path) -> None:
    array = np.ones(CHUNK, np.float32)
    array[[0, CHUNK // 4 - 1, CHUNK // 4, CHUNK - 1]] = np.nan
    library.save_file({"x": array}, tmp_path / "m.safetensors")
    found = digest(tmp_path / "m.safetensors")["x"]
    assert found.nonfinite == 4
    assert found.checksum == xxhash.xxh3_128_hexdigest(array.tobytes())


def test_zero_means_every_element_and_negative_zero_is_zero(tmp_path: Path) -> None:
    late = np.zeros(CHUNK, np.float32)
    late[-1] = 1e-30
    tensors = {"b": np.zeros((8, 4), np.float32), "negative": np.array([-0.0, 0.0], np.float32), "late": late}
    tensors |= {"counts": np.zeros(3, np.int64), "none": np.zeros((0, 4), np.float32)}
    tensors |= {f"byte {at}": np.eye(1, 2 * CHUNK + 1, at, dtype=np.uint8) for at in (0, CHUNK, 2 * CHUNK)}
    library.save_file(tensors, tmp_path / "m.safetensors")
    found = digest(tmp_path / "m.safetensors")
    assert {name: one.zero for name, one in found.items()} == {
        "b": True,
        "negative": True,
        "late": False,
        "counts": True,
        "none": False,
        **{f"byte {at}": False for at in (0, CHUNK, 2 * CHUNK)},
    }


def test_tensors_without_elements_keep_their_shape(tmp_path: Path) -> None:
    """ZeRO-3 saved without gathering writes shape [0]."""
    library.save_file({"x": np.zeros((0,), np.float32)}, tmp_path / "m.safetensors")
    found = digest(tmp_path / "m.safetensors")["x"]
    assert (found.shape, found.elements) == ((0,), 0)


def test_unknown_types_are_hashed_all_the_same(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "m.safetensors", {"x": entry("Q3_K", [9], 0, 4)}, b"\xff\xff\xff\x7f")
    assert digest(path)["x"].checksum == xxhash.xxh3_128_hexdigest(b"\xff\xff\xff\x7f")


@pytest.mark.parametrize(
    ("dtype", "raw", "nonfinite"),
    [
        ("F8_E4M3", b"\x7e\xfe\x78\x00", 0),  # ±448, 256, 0: all exponent bits are set in finite numbers
        ("F8_E4M3", b"\x7f\xff\x7e\x00", 2),  # two NaN
        ("F8_E5M2", b"\x7b\xfb\x03\x00", 0),  # ±57344, the largest
        ("F8_E5M2", b"\x7c\xfc\x7f\x00", 3),  # ±infinity, NaN
        ("U8", b"\x7f\xff\x7c\x00", 0),
    ],
)
def test_numbers_of_eight_bits_that_are_not_finite(tmp_path: Path, dtype: str, raw: bytes, nonfinite: int) -> None:
    found = digest(raw_file(tmp_path / "m.safetensors", {"x": entry(dtype, [4], 0, 4)}, raw))["x"]
    assert (found.nonfinite, found.zero) == (nonfinite, False)
    assert found.checksum == xxhash.xxh3_128_hexdigest(raw)


def test_header_that_claims_10_gb(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "model.safetensors", b"{" + b" " * 11_991, length=10_000_000_000)
    assert refusal(path) == "model.safetensors: truncated: header says 10 GB, file has 12 KB"


def test_header_beyond_the_limit_of_the_library(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "model.safetensors", b"{}", length=200_000_000)
    os.truncate(path, 300_000_000)
    assert "refused: a header of 200 MB" in refusal(path)


def test_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    library.save_file({"x": np.ones(1000, np.float32)}, path)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    assert refusal(path) == f"model.safetensors: truncated: header says {human(size)}, file has {human(size // 2)}"


HEADERS: dict[str, tuple[Any, int]] = {
    "overlap": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6),
    "same place twice": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 0, 4)}, 4),
    "gap": ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 4, 6)}, 6),
    "rest": ({"a": entry("U8", [2], 0, 2)}, 6),
    "end before begin": ({"a": entry("U8", [0], 4, 0)}, 4),
    "negative offset": ({"a": entry("U8", [6], -2, 4)}, 4),
    "negative shape": ({"a": entry("U8", [-2, -2], 0, 4)}, 4),
    "size is not type times shape": ({"a": entry("F32", [2], 0, 4)}, 4),
    "beyond the file": ({"a": entry("U8", [400], 0, 400)}, 4),
    "beyond all files": ({"a": entry("U8", [1 << 70], 0, 1 << 70)}, 4),
    "boolean offset": ({"a": entry("U8", [1], False, True)}, 1),
    "float offset": ({"a": entry("U8", [1], 0, 1.0)}, 1),  # type: ignore[arg-type]
    "no offsets": ({"a": {"dtype": "U8", "shape": [1]}}, 1),
    "no object": ([1, 2], 0),
    "entry is no object": ({"a": "x"}, 0),
    "name twice": (b'{"a": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}, "a": 1}', 1),
    "no json": (b'{"a": ', 0),
    "nested": (b"[" * 100_000, 0),
    "no utf-8": (b'{"\xff": 1}', 0),
    "escape in the type": ({"a": entry("F\x1b[2J", [1], 0, 1)}, 1),
    "no type": ({"a": entry("", [1], 0, 1)}, 1),
    "half a surrogate pair": (b'{"a\\ud800": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', 1),
    "name without end": ({"a" * 1001: entry("U8", [1], 0, 1)}, 1),
    "lists without end": (b'{"a": [' + b"[]," * 2_000_000 + b"[]]}", 0),
    "digits": (b'{"a": {"dtype": "U8", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 1]}}', 1),
}


NOT_UNDERSTOOD = "the header entry of 'a' is not understood"
SAID = {
    "overlap": "tensor 'b' overlaps another",
    "same place twice": "tensor 'b' overlaps another",
    "gap": "tensor 'b' follows a gap",
    "rest": "4 bytes after the last tensor; the file was not written whole",
    "end before begin": "offsets of 'a' do not fit its shape",
    "size is not type times shape": "offsets of 'a' do not fit its shape",
    "beyond the file": "truncated: header says 472 bytes, file has 76 bytes",
    "no object": "the header is no JSON object",
    "name twice": "the header names a tensor twice",
    "no json": "the header is not JSON (JSONDecodeError)",
    "nested": "the header is not JSON (RecursionError)",
    "no utf-8": "the header is not JSON (UnicodeDecodeError)",
    "digits": "the header is not JSON (ValueError)",
    "half a surrogate pair": "refused: a tensor is called 'a\\ud800', which no framework writes",
    "name without end": f"refused: a tensor is called {'a' * 80!r}, which no framework writes",
    "lists without end": "refused: a header of more than 4,000,000 parts",
}
"""What is reported of each; of all others that the entry of 'a' is not understood."""


@pytest.mark.parametrize("case", HEADERS)
def test_header_that_contradicts_itself_is_refused(tmp_path: Path, case: str) -> None:
    header, size = HEADERS[case]
    said = refusal(raw_file(tmp_path / "m.safetensors", header, bytes(size)))
    assert said == f"m.safetensors: {SAID.get(case, NOT_UNDERSTOOD)}"


@pytest.mark.parametrize("size", [0, 7, 8, 9])
def test_file_too_short_for_a_header(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"\x02" + bytes(size)[1:] if size else b"")
    assert f"truncated: {size} bytes" in refusal(path)


def test_dimensions_are_multiplied_only_where_that_is_cheap(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1 << 62] * 100_000, 0, 4)}
    assert "not understood" in refusal(raw_file(tmp_path / "m.safetensors", header, bytes(4)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "m.safetensors"
    library.save_file({"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 2), np.float16)}, path)
    return path


@pytest.mark.slow
@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.data())
def test_random_damage_never_reads_out_of_the_file(sound: Path, data: st.DataObject) -> None:
    """Whatever is accepted lies inside the file; whatever the library accepts, we accept."""
    content = bytearray(sound.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    damaged = sound.with_name("damaged.safetensors")
    damaged.write_bytes(content[: len(content) if cut % 3 else cut])
    try:
        library.load_file(damaged)
        sound_enough = True
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        sound_enough = False
    descriptor = os.open(damaged, os.O_RDONLY)
    try:
        extents = read_header(descriptor, damaged.name)
        assert all(8 <= extent.start <= extent.end <= len(content) for extent in extents)
        digest_file(descriptor, damaged.name)
    except TensorFileError:
        assert not sound_enough
    finally:
        os.close(descriptor)


def test_file_that_shrinks_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    library.save_file({"x": np.ones(CHUNK, np.float32)}, path)
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(ChangedWhileReadError, match="truncated while it was read"):
        digest_file(descriptor, path.name, lambda _: os.truncate(path, 2 * CHUNK))
    os.close(descriptor)


def test_file_written_to_while_it_is_read_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    library.save_file({"x": np.ones(10, np.float32)}, path)
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(ChangedWhileReadError, match="changed while it was read"):
        digest_file(descriptor, path.name, lambda _: os.utime(path, (1, 1)))
    os.close(descriptor)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A sparse file of 64 MB is read through buffers of 1 MiB."""
    path = raw_file(tmp_path / "m.safetensors", {"x": entry("F32", [16_000_000], 0, 64_000_000)})
    os.truncate(path, path.stat().st_size + 64_000_000)
    tracemalloc.start()
    assert digest(path)["x"].zero
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * CHUNK


def test_sizes_for_people() -> None:
    assert [human(size) for size in (7, 999, 1000, 12_345, 10_000_000_000)] == [
        "7 bytes",
        "999 bytes",
        "1 KB",
        "12.3 KB",
        "10 GB",
    ]
