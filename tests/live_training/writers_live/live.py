"""Checkpoints that real DeepSpeed (each stage of ZeRO) and Megatron write are read as what they hold.

Run by ``make writers-live`` (scripts/writers-live); no part of CI: deepspeed is built from its source.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import xxhash

from grpo_watch.engine.records import CheckpointDigest
from grpo_watch.probe.checksum import RADIX
from grpo_watch.sources.checkpoints.probe_source import ProbeSource
from grpo_watch.sources.checkpoints.source import CheckpointSource
from tests.support.detecting import Watched

pytestmark = pytest.mark.frameworks
torch = pytest.importorskip("torch")

SCRIPTS = Path(__file__).parents[1]
PYTHON = os.environ.get("WRITERS_PYTHON", sys.executable)
"""Of an environment with deepspeed and megatron-core."""
PATIENCE = 500


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run per stage: steps 1 and 2 were trained, at step 3 the same was saved again."""
    return written_by("save_deepspeed.py", tmp_path_factory.mktemp("deepspeed"))


def written_by(script: str, folder: Path) -> Path:
    command = [PYTHON, str(SCRIPTS / script), str(folder)]
    around = {**os.environ, "PYTHONPATH": str(SCRIPTS.parents[1])}
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def digests(folder: Path) -> list[CheckpointDigest]:
    one = CheckpointSource("global_step*", folder, [folder])
    found = [item for item in [*one.poll(None), *one.finish()] if isinstance(item, CheckpointDigest)]
    assert one.stats.skipped == {}
    assert one.stats.problem == ""
    assert [digest.problems for digest in found] == [(), (), ()]
    return found


def checksums(state: Mapping[str, Any]) -> dict[str, str]:
    """Of the elements' bytes, in the order of their indices."""
    return {
        name: str(xxhash.xxh3_128_hexdigest(one.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()))
        for name, one in state.items()
    }


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_the_module_of_each_step(saved: Path, stage: int) -> None:
    for digest in digests(saved / f"zero{stage}"):
        whole = torch.load(saved / f"zero{stage}-{digest.step}.pt", weights_only=True)
        assert {name: one.checksum for name, one in digest.tensors.items()} == checksums(whole)


def test_partitions_of_zero_3_hold_what_is_trained(saved: Path) -> None:
    """Float32 copies of five trained tensors in one flat group, cut in two; rounded to bf16 they are the weights."""
    for digest in digests(saved / "zero3"):
        assert digest.tensors.keys() == {"0@0/2", "0@1/2"}
        flat = [torch.load(saved / f"flat-{digest.step}-{rank}.pt", weights_only=True) for rank in range(2)]
        expected = checksums({f"0@{rank}/2": one for rank, one in enumerate(flat)})
        assert {name: one.checksum for name, one in digest.tensors.items()} == expected
        whole = torch.load(saved / f"zero3-{digest.step}.pt", weights_only=True)
        trained = torch.cat([one.reshape(-1) for name, one in whole.items() if name != "1.weight"])
        assert sorted(torch.cat(flat).bfloat16().tolist()) == sorted(trained.tolist())


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_trained_then_frozen(saved: Path, stage: int) -> None:
    first, second, third = digests(saved / f"zero{stage}")
    assert first.tensors != second.tensors
    assert first.optimizer["moments"] != second.optimizer["moments"]
    assert first.optimizer["masters"] != second.optimizer["masters"]
    assert second.tensors == third.tensors
    assert second.optimizer == third.optimizer
    assert second.optimizer["moments_zero"] is False
    assert Watched("parameters-unchanged").feed(first, second).changes == []
    watcher = Watched("parameters-unchanged").feed(first, second, third)
    assert watcher.changes == [("firing", 3, "critical")]
    assert "the optimizer's moments did not change either" in watcher.said[-1].reading.message


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_the_frozen_norm_never_changes(saved: Path, stage: int) -> None:
    first, second, _ = digests(saved / f"zero{stage}")
    same = {name for name, one in first.tensors.items() if second.tensors[name].checksum == one.checksum}
    assert same == {"1.weight"}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_probe_reads_what_the_processes_hold(saved: Path, stage: int) -> None:
    """ZeRO-3's partitions add up to the checksum of the gathered weights; below it the first process writes all."""
    folder = saved / f"probe{stage}"
    source = ProbeSource("probe", folder, [folder])
    found = [item for item in [*source.poll(None), *source.finish()] if isinstance(item, CheckpointDigest)]
    assert (source.stats.problem, [digest.step for digest in found]) == ("", [1, 2, 3])
    for digest in found:
        whole = torch.load(saved / f"zero{stage}-{digest.step}.pt", weights_only=True)
        expected = {name: by_definition(one) for name, one in whole.items() if name != "1.weight"}
        assert {name: one.checksum for name, one in digest.tensors.items()} == expected
    assert found[0].tensors != found[1].tensors
    assert found[1].tensors == found[2].tensors


def by_definition(tensor: Any) -> str:
    """The checksum that docs/callback.md states, in Python's integers; the bytes are whole words here."""
    words = tensor.contiguous().reshape(-1).view(torch.int32).tolist()
    return f"{sum(word * pow(RADIX, k, 1 << 64) for k, word in enumerate(words)) % (1 << 64):016x}"


def test_the_program_says_so(saved: Path) -> None:
    command = [sys.executable, "-m", "grpo_watch", "digest", "global_step2", "global_step3"]
    done = subprocess.run(command, cwd=saved / "zero2", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_megatron_is_compared_file_by_file(tmp_path: Path) -> None:
    """``dist_checkpointing`` of megatron-core, as Megatron-LM and slime call it: equal files prove a freeze."""
    folder = written_by("save_megatron.py", tmp_path)
    found = digests(folder)
    assert [digest.step for digest in found] == [1, 2, 3]
    assert {one.dtype for digest in found for one in digest.tensors.values()} == {"FILE"}
    raw = {path.name: path.read_bytes() for path in (folder / "iter_0000002").glob("*.distcp")}
    expected = {name: xxhash.xxh3_128_hexdigest(data) for name, data in raw.items()}
    assert {name: one.checksum for name, one in found[1].tensors.items()} == expected
    assert Watched("parameters-unchanged").feed(*found).changes == [("firing", 3, "critical")]
