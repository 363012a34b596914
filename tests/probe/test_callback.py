"""The callback without torch: what it imports, when it probes, that it never raises, and the stop file."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_watch import callback
from grpo_watch.callback import GrpoWatchCallback, probe
from grpo_watch.probe import checksum, job, writing
from grpo_watch.sources.checkpoints import probe_file
from grpo_watch.sources.checkpoints.probe_source import FILE

Lines = list[dict[str, Any]]


def read(folder: Path, name: str = "grpo-watch-probe-0.jsonl") -> Lines:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def arguments(folder: Path, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(output_dir=str(folder), **more)


def steps(one: GrpoWatchCallback, folder: Path, last: int, first: int = 1) -> SimpleNamespace:
    """Trains from step to step; gives the Trainer's control."""
    control, model = SimpleNamespace(should_training_stop=False), SimpleNamespace()
    one.on_train_begin(arguments(folder), SimpleNamespace(global_step=0), control, model=model)
    for step in range(first, last + 1):
        one.on_step_end(arguments(folder), SimpleNamespace(global_step=step, max_steps=99), control, model=model)
    return control


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Steps at which weights were read, and whether the frozen ones were."""
    found: list[tuple[int, bool]] = []

    def stand_in(model: object, step: int, path: Path, *, frozen: bool, **_: int) -> None:
        found.append((step, frozen))

    monkeypatch.setattr(callback, "_probe", stand_in)
    return found


def test_importing_it_imports_nothing_but_the_standard_library() -> None:
    """No torch, and none of grpo-watch's own dependencies: pip install --no-deps is enough."""
    script = (
        "import sys; before = set(sys.modules); import grpo_watch.callback; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'grpo_watch'}))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_both_sides_agree_on_the_format() -> None:
    """The callback imports nothing of the reader, so each side states the format."""
    assert (probe_file.SCHEMA, probe_file.MODULUS) == (writing.SCHEMA, checksum.MODULUS)
    assert FILE.fullmatch(writing.FILE.format(rank=12))


def test_it_probes_after_the_first_step_and_every_n(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    steps(GrpoWatchCallback(every=10, frozen_every=20), tmp_path, 30)
    assert probed == [(1, True), (10, False), (20, True), (30, False)]


def test_a_resumed_job_probes_at_once(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    steps(GrpoWatchCallback(every=10), tmp_path, 50, first=43)
    assert [step for step, _ in probed] == [43, 50]


def test_frozen_parameters_have_a_rhythm_of_their_own(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    """Also one that ``every`` does not divide."""
    steps(GrpoWatchCallback(every=10, frozen_every=25), tmp_path, 50)
    assert [step for step, _ in probed] == [1, 10, 20, 25, 30, 40, 50]
    assert [step for step, frozen in probed if frozen] == [1, 25, 50]


def test_a_resumed_job_reads_the_frozen_ones_at_once(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    steps(GrpoWatchCallback(every=10, frozen_every=50), tmp_path, 61, first=43)
    assert probed == [(43, True), (50, True), (60, False)]


def test_an_error_is_written_once_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here torch was never imported; nothing is raised, and no further step tries."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    control = steps(GrpoWatchCallback(every=1), tmp_path, 5)
    (line,) = [line for line in read(tmp_path) if line["kind"] == "error"]
    assert (line["step"], line["text"]) == (1, "RuntimeError: this process has not imported torch")
    assert not control.should_training_stop


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("")
    steps(GrpoWatchCallback(every=1), tmp_path / "output", 3)
    assert not probe(SimpleNamespace(), 1, tmp_path / "output")


@pytest.mark.parametrize("wrong", [{"every": 0}, {"frozen_every": -1}, {"writers": 0}])
def test_wrong_options_are_reported_before_training(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        GrpoWatchCallback(**wrong)


def test_events_of_no_interest_and_other_names() -> None:
    """transformers calls every event on every callback; anything else is an error as ever."""
    one = GrpoWatchCallback()
    assert one.on_epoch_begin(None, None, None, model=None) is None
    with pytest.raises(AttributeError):
        one.something_else()


def test_ms_swift_gives_arguments_and_trainer(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    """callbacks_map["grpo_watch"](args, trainer)."""
    one = GrpoWatchCallback(arguments(tmp_path / "given"), SimpleNamespace())
    steps(one, tmp_path / "other", 1)
    assert [step for step, _ in probed] == [1]
    assert not (tmp_path / "other").exists()


def test_processes_beyond_the_first_few_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "8")
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert probe(SimpleNamespace(), 1, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("above", [0, 1, 2])
def test_the_stop_file_is_honoured_only_on_request(tmp_path: Path, probed: list[tuple[int, bool]], above: int) -> None:
    """In the output folder or up to two above it; an earlier attempt's is removed at the start."""
    output = tmp_path / "run" / "output" / "v0"
    output.mkdir(parents=True)
    stop = (output, *output.parents)[above] / "grpo-watch.stop"
    stop.write_text("{}")
    assert not steps(GrpoWatchCallback(every=2), output, 4).should_training_stop
    assert stop.exists()
    asked = GrpoWatchCallback(every=2, stop_file="grpo-watch.stop")
    control = steps(asked, output, 3)
    assert not stop.exists()
    stop.write_text("{}")
    state = SimpleNamespace(global_step=4, max_steps=99)
    asked.on_step_end(arguments(output), state, control, model=SimpleNamespace())
    assert probed
    assert control.should_training_stop


def test_a_place_that_can_not_be_looked_into_hides_no_stop_file_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale mount in the first place; the file lies in the folder above."""
    output, exists = tmp_path / "output", Path.exists

    def stale(self: Path) -> bool:
        if self.parent == output:
            raise OSError(errno.ESTALE, "Stale file handle")
        return exists(self)

    monkeypatch.setattr(Path, "exists", stale)
    one = GrpoWatchCallback(every=1, stop_file="STOP")
    assert not one._asked(arguments(output))
    (tmp_path / "STOP").touch()
    assert one._asked(arguments(output))


def test_it_says_once_that_it_stopped(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    one = GrpoWatchCallback(every=2, stop_file="grpo-watch.stop")
    control = steps(one, tmp_path, 2)
    (tmp_path / "grpo-watch.stop").touch()
    for step in (4, 6):  # a trainer that does not stop at once
        one.on_step_end(arguments(tmp_path), SimpleNamespace(global_step=step), control, model=SimpleNamespace())
    (line,) = [line for line in read(tmp_path) if line["kind"] == "stopped"]
    assert {name: line[name] for name in ("step", "rank")} == {"step": 4, "rank": 0}
    assert probed


@pytest.mark.parametrize("text", ["", "stop please", "[]", '{"step": "x"}', "\xff", "[" * 100_000])
def test_a_file_made_by_hand_counts(tmp_path: Path, probed: list[tuple[int, bool]], text: str) -> None:
    one = GrpoWatchCallback(every=1, stop_file="STOP")
    control = steps(one, tmp_path, 1)
    (tmp_path / "STOP").write_bytes(text.encode("latin-1"))
    one.on_step_end(arguments(tmp_path), SimpleNamespace(global_step=2), control, model=SimpleNamespace())
    assert control.should_training_stop
    assert probed


def test_a_pipe_for_a_stop_file_hangs_nothing(tmp_path: Path, probed: list[tuple[int, bool]]) -> None:
    one = GrpoWatchCallback(every=1, stop_file="STOP")
    control = steps(one, tmp_path, 1)
    os.mkfifo(tmp_path / "STOP")
    one.on_step_end(arguments(tmp_path), SimpleNamespace(global_step=2), control, model=SimpleNamespace())
    assert control.should_training_stop
    assert probed


@pytest.mark.parametrize(
    ("broken", "tried"),
    [
        ({2, 3}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({2, 3, 5, 6}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({2, 3, 4, 6}, [1, 2, 3, 4]),
    ],
)
def test_a_disk_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: set[int], tried: list[int]
) -> None:
    """Three in a row are the end."""
    attempts = []

    def weights(_journal: Any, _model: Any, _of: str, what: dict[str, Any]) -> None:
        attempts.append(what["step"])
        if what["step"] in broken:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(callback, "write_weights", weights)
    steps(GrpoWatchCallback(every=1), tmp_path, 8)
    assert attempts == tried


@pytest.mark.parametrize(
    ("error", "trained", "frozen"),
    [(RuntimeError("no tensor can be read: 4 of 4"), 5, 1), (OSError(28, "No space left on device"), 3, 3)],
    ids=["can't be read", "the disk"],
)
def test_frozen_parameters_that_fail_alone_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, trained: int, frozen: int
) -> None:
    """The trained ones go on; it is reported once, with the reason."""
    asked: list[str] = []

    def weights(_journal: Any, _model: Any, of: str, _what: dict[str, Any]) -> None:
        asked.append(of)
        if of == "frozen":
            raise error

    monkeypatch.setattr(callback, "write_weights", weights)
    steps(GrpoWatchCallback(every=1, frozen_every=1), tmp_path, 5)
    assert (asked.count("policy"), asked.count("frozen")) == (trained, frozen)
    reported = [line["text"] for line in read(tmp_path) if line["kind"] == "error"]
    assert len(reported) == frozen
    assert str(error) in reported[0]


class Hostile:
    """Whose every attribute fails."""

    def __getattr__(self, name: str) -> Any:
        raise (AttributeError if name.startswith("__") else RuntimeError)(name)


class Backwards:
    """A folder, a version or a step that is unknown."""

    def __str__(self) -> str:
        raise RuntimeError("unspeakable")

    __fspath__ = __int__ = __format__ = __str__


NOTHING = SimpleNamespace(output_dir=None)
GOOD, AT = SimpleNamespace(modules=list, named_parameters=list), SimpleNamespace(global_step=10, max_steps=99)


@pytest.mark.parametrize(
    ("args", "state", "control", "model"),
    [
        (Hostile(), AT, Hostile(), GOOD),
        (NOTHING, AT, None, GOOD),
        (None, AT, None, GOOD),
        (None, None, None, GOOD),
        (NOTHING, SimpleNamespace(global_step=None), None, GOOD),
        (SimpleNamespace(output_dir=Backwards()), AT, None, GOOD),
        (SimpleNamespace(output_dir="\0"), AT, None, GOOD),
        (SimpleNamespace(output_dir="."), AT, None, Hostile()),
    ],
)
@pytest.mark.parametrize("rank", ["0", "", "one"])
@pytest.mark.parametrize("stop_file", [None, "stop", "\0"])
def test_nothing_is_raised_into_training(  # noqa: PLR0913, PLR0917  what a Trainer gives
    args: Any,
    state: Any,
    control: Any,
    model: Any,
    rank: str,
    stop_file: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """For any arguments, state, model, launcher and folder."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.chdir(tmp_path)
    one = GrpoWatchCallback(every=1, frozen_every=1, stop_file=stop_file)
    for _ in range(2):
        one.on_train_begin(args, state, control, model=model)
        one.on_step_end(args, state, control, model=model)


def test_a_folder_or_step_that_is_unknown() -> None:
    wrong: Any = Backwards()
    assert not probe(GOOD, 1, wrong)
    assert not probe(GOOD, wrong, ".")


def test_what_stops_a_job_on_purpose_is_not_kept_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the weights are read ends the job."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(callback, "write_weights", interrupted)
    one, model = GrpoWatchCallback(every=1), SimpleNamespace()
    with pytest.raises(KeyboardInterrupt):
        one.on_step_end(arguments(tmp_path), AT, None, model=model)


def test_a_process_that_can_not_look_votes_no(tmp_path: Path) -> None:
    """After any error while it looks: the others wait for its vote."""
    one = GrpoWatchCallback(every=1, stop_file="\0", path=tmp_path)
    assert not one._asked(Hostile())
    assert not GrpoWatchCallback(every=1, stop_file="stop")._asked(NOTHING)


def test_how_completions_are_sampled(tmp_path: Path) -> None:
    """The arguments over the model's own settings, the request's over both; nothing but plain values."""
    model = SimpleNamespace(generation_config=SimpleNamespace(temperature=0.7, top_k=20, do_sample=False, seed=3))
    trl = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=None, generation_kwargs={"top_k": 1, "seed": 5, "stop": []})
    assert job.sampling(model, trl) == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 1,
        "seed": 5,
        "model_temperature": 0.7,
        "model_top_k": 20,
    }
    request = SimpleNamespace(request_config=SimpleNamespace(temperature=0.9, top_k=-1, seed=None))
    swift = arguments(tmp_path, temperature=1.0, top_p=math.inf, min_p=math.nan, generation_kwargs=None)
    greedy = arguments(tmp_path, generation_kwargs={"do_sample": False})
    assert job.sampling(model, greedy)["do_sample"] is False
    assert job.sampling(SimpleNamespace(), swift, request) == {"temperature": 0.9, "top_k": -1}


def test_the_start_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank, seed, settings and sampling; ms-swift's trainer makes its request after the callback was made."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(initial_seed=lambda: 77))
    trainer = SimpleNamespace()
    one = GrpoWatchCallback(arguments(tmp_path), trainer, every=1)
    trainer.request_config = SimpleNamespace(temperature=0.9, seed=5)
    for step in (1, 2):
        state = SimpleNamespace(global_step=step, max_steps=99)
        shown = arguments(tmp_path, beta=0.04, report_to="elsewhere", reward_weights=[1.0, -0.5])
        one.on_step_end(shown, state, None, model=SimpleNamespace())
    (line,) = [line for line in read(tmp_path) if line["kind"] == "start"]
    assert (line["rank"], line["ranks"], line["seed"]) == (0, 1, 77)
    assert line["settings"] == {"beta": 0.04, "steps_printed": 99, "reward_weights": [1.0, -0.5]}
    assert line["sampling"] == {"temperature": 0.9, "seed": 5}


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """A process that was killed while it wrote; what comes after is a line of its own."""
    written = writing.Journal(tmp_path, "grpo-watch-probe-0.jsonl")
    written.write("weights", {"step": 1})
    with written.path.open("a") as file:
        file.write('{"grpo_watch": "probe/1", "kin')
    written.write("weights", {"step": 3})
    written.write("weights", {"step": 4})
    lines = written.path.read_text().splitlines()
    assert len(lines) == 4
    assert [json.loads(lines[at])["step"] for at in (0, 2, 3)] == [1, 3, 4]


def test_a_line_that_is_not_written_whole_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """A write may end early when the disk is full, without an error of its own; here the size of files is limited."""
    script = (
        "import resource, signal, sys; from grpo_watch.probe.writing import Journal; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        "Journal(sys.argv[1], 'file').write('weights', {'tensors': 'x' * 500})"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "bytes were written" in done.stderr
    assert (tmp_path / "file").stat().st_size == 100
