"""The callback's files: one digest per step from all processes, bad lines, late processes, restarts anywhere."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import CheckpointDigest, CheckpointKind, Cursor, Item, RunConfig
from grpo_watch.sources.base import Skip
from grpo_watch.sources.checkpoints.probe_source import ProbeSource
from grpo_watch.sources.discovery.discover import ChannelContent, discover
from tests.support.bundles import unpack

W = "layer.weight"
ONE, TWO = "0000000000000001", "0000000000000002"


def entry(checksum: str, copy: int = 0, parts: int = 1, shape: tuple[int, ...] = (4,)) -> list[Any]:
    return ["bfloat16", list(shape), checksum, copy, parts]


def weights(step: int, tensors: Mapping[str, list[Any]], rank: int = 0, ranks: int = 1, **more: Any) -> dict[str, Any]:
    place = {"rank": rank, "ranks": ranks, "writers": ranks}
    return {"kind": "weights", "of": "policy", "step": step, **place, "tensors": tensors, **more}


def start(rank: int = 0, ranks: int = 1, seed: int = 7, **settings: Any) -> dict[str, Any]:
    return {"kind": "start", "rank": rank, "ranks": ranks, "seed": seed, "framework": "trl", "settings": settings}


def write(folder: Path, *lines: dict[str, Any] | str, rank: int | str = 0) -> None:
    with (folder / f"grpo-watch-probe-{rank}.jsonl").open("a") as stream:
        for line in lines:
            text = line if isinstance(line, str) else json.dumps({"grpo_watch": "probe/1", **line})
            stream.write(text + "\n")


def source(folder: Path, cursor: Cursor | None = None) -> ProbeSource:
    return ProbeSource("probe", folder, [folder], cursor=cursor)


def digests(items: list[Item]) -> list[CheckpointDigest]:
    return [item for item in items if isinstance(item, CheckpointDigest)]


def sums(digest: CheckpointDigest) -> dict[str, str]:
    return {name: tensor.checksum for name, tensor in digest.tensors.items()}


def test_one_process(tmp_path: Path) -> None:
    """Settings first, then a digest per probe; a checksum of 0 is a tensor of zeros."""
    write(tmp_path, start(beta=0.04, per_device_train_batch_size=8, gradient_accumulation_steps=1))
    write(tmp_path, weights(1, {W: entry(ONE), "lora_B": entry("0" * 16)}), weights(10, {W: entry(TWO)}))
    config, *rest = source(tmp_path).poll(3.0)
    assert isinstance(config, RunConfig)
    assert (config.framework, config.settings["beta"].value, config.settings["world_size"].value) == ("trl", 0.04, 1)
    first, second = digests(rest)
    assert (first.step, first.kind, first.seen, second.step) == (1, CheckpointKind.PROBE, 3.0, 10)
    assert (first.tensors["lora_B"].zero, first.tensors[W].zero, first.tensors[W].shape) == (True, False, (4,))


def test_how_completions_are_sampled(tmp_path: Path) -> None:
    """What is no number, or not known, is left out."""
    sampling = {"temperature": 1.0, "model_temperature": 0.7, "top_k": 1, "do_sample": False, "seed": 5, "min_p": 0.1}
    write(tmp_path, start() | {"sampling": {**sampling, "top_p": "much"}}, start() | {"sampling": []})
    first, second = source(tmp_path).poll(None)
    assert isinstance(first, RunConfig)
    assert isinstance(second, RunConfig)
    reported = {name: setting.value for name, setting in first.settings.items() if name != "world_size"}
    assert reported == {"temperature": 1.0, "model_temperature": 0.7, "top_k": 1, "do_sample": False, "request_seed": 5}
    assert first.settings["request_seed"].origin == "the callback"
    assert list(second.settings) == ["world_size"]


def test_processes_that_mean_different_things_by_one_name(tmp_path: Path) -> None:
    """Not added up: of another shape, each goes by its rank."""
    write(tmp_path, weights(10, {W: entry(ONE, parts=2, shape=(4,))}, 0, 2))
    write(tmp_path, weights(10, {W: entry(TWO, parts=2, shape=(5,))}, 1, 2), rank=1)
    (digest,) = digests(list(source(tmp_path).poll(None)))
    assert sums(digest) == {f"{W}@0/2": ONE, f"{W}@1/2": TWO}


def test_frozen_lines(tmp_path: Path) -> None:
    """A file of a rollout engine, which earlier versions wrote, is left alone."""
    write(tmp_path, weights(10, {W: entry(ONE)}), weights(10, {"base": entry(ONE)}, of="frozen"))
    write(tmp_path, weights(10, {W: entry(TWO)}, of="engine", synced=True), rank="engine")
    found = digests(list(source(tmp_path).poll(None)))
    assert [digest.kind for digest in found] == [CheckpointKind.PROBE, CheckpointKind.FROZEN]


def test_shards_add_up_modulo_two_to_the_64(tmp_path: Path) -> None:
    """Also where one of them holds nothing."""
    write(tmp_path, weights(10, {W: entry("ffffffffffffffff", parts=2), "b": entry(ONE, parts=2)}, 0, 2))
    write(tmp_path, weights(10, {W: entry(TWO, parts=2), "b": entry("", parts=2)}, 1, 2), rank=1)
    (digest,) = digests(list(source(tmp_path).poll(None)))
    assert sums(digest) == {W: ONE, "b": ONE}


def test_shards_that_nothing_places_go_by_rank(tmp_path: Path) -> None:
    write(tmp_path, weights(10, {W: entry(ONE, parts=0)}, 0, 2))
    write(tmp_path, weights(10, {W: entry(TWO, parts=0)}, 1, 2), rank=1)
    (digest,) = digests(list(source(tmp_path).poll(None)))
    assert sums(digest) == {f"{W}@0/2": ONE, f"{W}@1/2": TWO}


def test_replicas_of_earlier_versions_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, weights(10, {W: entry(ONE), "b": entry(ONE)}, 0, 2))
    write(tmp_path, weights(10, {W: entry(TWO, copy=1), "b": entry(ONE, copy=1)}, 1, 2), rank=1)
    (digest,) = digests(list(source(tmp_path).poll(None)))
    assert (sums(digest), digest.replicas) == ({W: ONE, "b": ONE}, ())


def test_a_process_is_waited_for(tmp_path: Path) -> None:
    """Until it comes, fails, or is two probes behind; at the end nobody is."""
    write(tmp_path, weights(10, {W: entry(ONE)}, 0, 2))
    reader = source(tmp_path)
    assert digests(list(reader.poll(1.0))) == []
    write(tmp_path, weights(10, {}, 1, 2), rank=1)
    assert [digest.step for digest in digests(list(reader.poll(2.0)))] == [10]
    write(tmp_path, *(weights(step, {W: entry(ONE)}, 0, 2) for step in (20, 30)))
    assert digests(list(reader.poll(3.0))) == []
    write(tmp_path, weights(40, {W: entry(ONE)}, 0, 2))
    assert [digest.step for digest in digests(list(reader.poll(4.0)))] == [20]
    write(tmp_path, {"kind": "error", "step": 20, "text": "OutOfMemoryError"}, rank=1)
    assert [digest.step for digest in digests(list(reader.poll(5.0)))] == [30, 40]
    assert reader.stats.problem == "grpo-watch-probe-1.jsonl: the probe stopped after step 20: OutOfMemoryError"
    write(tmp_path, weights(50, {W: entry(ONE)}, 0, 3))
    assert digests(list(reader.poll(6.0))) == []
    assert [digest.step for digest in digests(list(reader.finish()))] == [50]


def test_a_resume_repeats_steps(tmp_path: Path) -> None:
    """Lines of the second start are joined with each other, not with those of the first."""
    for rank in (0, 1):
        lines = [start(rank, 2), weights(10, {W: entry(ONE, copy=rank)}, rank, 2)]
        again = [start(rank, 2), weights(10, {W: entry(TWO, copy=rank)}, rank, 2)]
        write(tmp_path, *lines, *again, rank=rank)
    found = digests(list(source(tmp_path).poll(None)))
    assert [(digest.step, sums(digest)) for digest in found] == [(10, {W: ONE}), (10, {W: TWO})]


@pytest.mark.parametrize(("seeds", "reported"), [((7, 7), "same"), ((7, 8), "different")])
def test_the_seeds_of_all_processes(tmp_path: Path, seeds: tuple[int, int], reported: str) -> None:
    for rank, seed in enumerate(seeds):
        write(tmp_path, start(rank, 2, seed), rank=rank)
    configs = [item for item in source(tmp_path).poll(None) if isinstance(item, RunConfig)]
    assert [setting.value for config in configs if (setting := config.settings.get("rank_seeds"))] == [reported]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"grpo_watch": "probe/1", "kind": "weights", "of": "policy", "step": 3, "rank": 0, "tensors": {"a": ["x"]}}',
        '{"grpo_watch": "probe/1", "kind": "weights", "of": "policy", "step": -1, "rank": 0, "tensors": {}}',
        '{"grpo_watch": "probe/1", "kind": "weights", "of": "her", "step": 1, "rank": 0, "tensors": {}}',
        '{"grpo_watch": "probe/1", "kind": "weights", "of": "policy", "step": 1, "rank": 0, "tensors": []}',
        '{"grpo_watch": "probe/1", "kind": "weights", "of": "policy", "step": 1, "tensors": {"a": ["x", [], "?", 0]}}',
        "[" * 100_000,
    ],
)
def test_a_bad_line_is_counted_and_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, weights(1, {W: entry(ONE)}), line, weights(2, {W: entry(ONE)}))
    reader = source(tmp_path)
    assert [digest.step for digest in digests(list(reader.poll(None)))] == [1, 2]
    assert reader.stats.skipped == {Skip.BAD_VALUE: 1}
    assert "grpo-watch-probe-0.jsonl, line 2" in reader.stats.first_bad


def test_lines_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, '{"grpo_watch": "probe/2", "kind": "weights"}', {"kind": "later"}, weights(1, {W: entry(ONE)}))
    reader = source(tmp_path)
    assert [digest.step for digest in digests(list(reader.poll(None)))] == [1]
    assert reader.stats.skipped == {}


def test_any_chunks_and_restarts_give_the_same(tmp_path: Path) -> None:
    """Two processes' files grow by pieces; the reader is rebuilt from its cursor after any item."""
    lines: dict[int, bytes] = {}
    for rank in (0, 1):
        write(tmp_path, start(rank, 2), rank=rank)
        for step in range(1, 12):
            write(tmp_path, weights(step, {W: entry(f"{step:016x}", parts=2)}, rank, 2), rank=rank)
        path = tmp_path / f"grpo-watch-probe-{rank}.jsonl"
        lines[rank] = path.read_bytes()
    expected = digests(list(source(tmp_path).poll(None)))
    assert len(expected) == 11
    for seed in range(20):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        reader, got, written = source(folder), [], {0: 0, 1: 0}
        while any(written[rank] < len(lines[rank]) for rank in lines):
            rank = draw.choice([0, 1])
            if lines[1 - rank][: written[1 - rank]].count(b"\n") < lines[rank][: written[rank]].count(b"\n"):
                continue  # no process is ever two probes ahead of the other
            more = lines[rank][written[rank] : written[rank] + draw.randrange(1, 300)]
            written[rank] += len(more)
            with (folder / f"grpo-watch-probe-{rank}.jsonl").open("ab") as stream:
                stream.write(more)
            for item in reader.poll(None):
                got.append(item)
                if draw.random() < 0.3:
                    cursor = reader.cursor()
                    reader.close()
                    reader = source(folder, cursor)
                    break
        got += reader.poll(None)
        assert digests(got) == expected, seed


def test_discovery_finds_one_channel_per_folder(tmp_path: Path) -> None:
    """All processes' files belong to the run beside whose log they lie."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "logging.jsonl").write_text('{"loss": 1.0, "global_step/max_steps": "1/5"}\n')
    for rank in (0, 1, "engine", "engine-0-node-7"):
        write(run, weights(1, {W: entry(ONE)}), rank=rank)
    (found,) = discover(tmp_path)
    channels = [
        (channel.what, channel.name, channel.path) for channel in found.channels if channel.what is ChannelContent.PROBE
    ]
    assert channels == [(ChannelContent.PROBE, "grpo-watch-probe-*.jsonl", run)]


def test_a_line_that_is_too_long_is_counted_and_reported(tmp_path: Path) -> None:
    """9 MiB; the channel is not silently blind, and reads on."""
    write(tmp_path, weights(1, {W: entry(ONE)}), " " * (9 << 20))
    reader = source(tmp_path)
    assert [digest.step for digest in digests(list(reader.poll(None)))] == [1]
    assert reader.stats.skipped == {Skip.TOO_LONG: 1}
    assert reader.stats.problem == f"grpo-watch-probe-0.jsonl: line 2 is too long to be read ({(9 << 20) + 1} bytes)"
    write(tmp_path, weights(2, {W: entry(ONE)}))
    assert [digest.step for digest in digests(list(reader.poll(None)))] == [2]
    assert reader.stats.problem == ""


def test_what_a_real_run_of_ms_swift_says_of_itself(tmp_path: Path) -> None:
    """ms-swift 4.6.0 with the callback every 5 steps: its settings, and how it samples."""
    (file,) = unpack("ms-swift-4.6.0-20b-healthy-probe", tmp_path).rglob("grpo-watch-probe-0.jsonl")
    config, *rest = [*source(file.parent).poll(None)]
    assert isinstance(config, RunConfig)
    reported = {name: setting.value for name, setting in config.settings.items()}
    assert config.framework == "ms-swift"
    assert {"num_generations": 6, "temperature": 0.9, "top_k": -1, "top_p": 1.0, "seed": 42}.items() <= reported.items()
    found = digests(rest)
    assert [digest.step for digest in found] == [1, *range(5, 45, 5)]
    assert {len(digest.tensors) for digest in found} == {27}
    assert len({digest.tensors["model.norm.weight"].checksum for digest in found}) == len(found)
