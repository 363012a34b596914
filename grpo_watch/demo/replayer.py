"""Writes the bundled runs into a folder as their trainer did: the log in its recorded pieces, checkpoints in between.

Both are TRL 1.16.0 on a tiny Qwen2, 100 steps. One has an optimizer whose step does nothing; its three checkpoints are
byte-identical, so their weights are bundled once. Only the log of the other, which learns, is bundled.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

CHECKPOINTS = (60, 80, 100)
BUNDLE = Path(__file__).parent / "frozen"
HEALTHY = Path(__file__).parent / "healthy"
HEALTHY_SECONDS = 18.0
"""Length of the recording of the frozen run."""


def replay_run(folder: Path, wait: Callable[[float], bool], speed: float) -> None:
    """Write the run under ``folder``.

    Args:
        folder: an empty folder, or one to be made; ``train.log`` and ``output/`` appear in it.
        wait: waits so many seconds; returning True stops the replay.
        speed: how many times faster than the recording.
    """
    text = _unpack("train.log.gz")
    marks = [(step, text.index(f"| {step}/100 [".encode())) for step in CHECKPOINTS]
    output = folder / "output"
    output.mkdir(parents=True)
    shutil.copyfile(BUNDLE / "README.md", output / "README.md")
    with (folder / "train.log").open("wb", buffering=0) as log:
        written = 0
        for seconds, size in _arrivals():
            if wait(seconds / speed):
                return
            log.write(text[written:size])
            while marks and marks[0][1] < size:
                _save(output / f"checkpoint-{marks.pop(0)[0]}")
            written = size


def replay_healthy(folder: Path, wait: Callable[[float], bool], speed: float) -> None:
    """Write the log of the healthy run under ``folder`` at an even pace; see ``replay_run``."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(BUNDLE / "README.md", folder / "README.md")  # the trainer wrote the same card for both
    lines = _unpack("train.log.gz", HEALTHY).splitlines(keepends=True)
    with (folder / "train.log").open("wb", buffering=0) as log:
        for line in lines:
            if wait(HEALTHY_SECONDS / len(lines) / speed):
                return
            log.write(line)


def _arrivals() -> Iterator[tuple[float, int]]:
    """For each recorded piece: seconds since the previous one, and bytes of the log so far."""
    before: float | None = None
    for line in _unpack("arrivals.tsv.gz").decode().splitlines():
        time, size = line.split("\t")
        yield (0.0 if before is None else max(0.0, float(time) - before)), int(size)
        before = float(time)


def _save(checkpoint: Path) -> None:
    """Write weights first, ``trainer_state.json`` last, in the order of transformers' Trainer."""
    checkpoint.mkdir()
    step = checkpoint.name.rpartition("-")[2]
    (checkpoint / "model.safetensors").write_bytes(_unpack("model.safetensors.gz"))
    (checkpoint / "trainer_state.json").write_bytes(_unpack(f"trainer_state-{step}.json.gz"))


def _unpack(name: str, bundle: Path = BUNDLE) -> bytes:
    return gzip.decompress((bundle / name).read_bytes())
