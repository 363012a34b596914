"""A path in, runs and channels out: the layouts of real runs, and what may not be mistaken for one."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.sources.discovery import look, sniff
from grpo_watch.sources.discovery.discover import ChannelContent, Discoverer, FoundRun, discover
from grpo_watch.sources.discovery.look import MOST_CHEAP
from tests.support.bundles import RUNS

BAR = "\r  1%|          | 1/100 [00:00<00:32,  3.05it/s]\r    \r"
CONSOLE = BAR + "{'loss': '-0.1877', 'grad_norm': '0.6572', 'reward': '0.49'}\n"
SWIFT_CONSOLE = "run sh: `python swift/cli/rlhf.py --rlhf_type grpo`\n[INFO:swift] start\nTrain:   0%|   | 0/80\n"
CRASH = 'Traceback (most recent call last):\n  File "x/trl/trainer/grpo_config.py", line 1138\nValueError: no\n'
SWIFT_ROW = {"loss": 0.1, "reward": 0.4, "kl": 0.0, "global_step/max_steps": "1/80"}
TABLE = {"step": ["1", "1"], "prompt": ["a", "a"], "completion": ["b", "c"], "MyReward": [0.1, 0.2]}


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def trl_run(root: Path) -> Path:
    """The folder of a TRL 1.16.0 run with wandb offline, as seen on disk."""
    write(root / "train.log", CONSOLE)
    write(root / "train.log.arrivals.tsv", "1\t2\n")
    write(root / "meta.json", '{"loss": 1}')
    write(root / "output/README.md", "- TRL: 1.16.0\n")
    write(root / "output/checkpoint-20/trainer_state.json", "{}")
    write(root / "output/checkpoint-20/model.safetensors")
    write(root / "output/completions/completions_00001.parquet")
    write(root / "output/completions/completions_00002.parquet")
    write(root / "output/runs/Nov21_08-14-08_vm/events.out.tfevents.1795248848.vm.1.0")
    write(root / "output/runs/Nov21_08-24-34_vm/events.out.tfevents.1795249474.vm.2.0")
    run = root / "wandb/offline-run-20261121_081408-wjkar9cd"
    write(run / "run-wjkar9cd.wandb")
    write(run / "files/output.log", CONSOLE)
    write(run / "files/requirements.txt", "trl==1.16.0\n")
    write(run / "logs/debug.log", CRASH)
    write(root / "wandb/debug.log", CRASH)
    (root / "wandb/latest-run").symlink_to(run)
    return root


def swift_run(root: Path) -> Path:
    """An ms-swift run that was resumed: two vN- folders."""
    write(root / "train.log", SWIFT_CONSOLE)
    for folder, step in (("v1-20261121-084104", 21), ("v0-20261121-084049", 1)):
        out = root / "output" / folder
        write(out / "logging.jsonl", json.dumps({**SWIFT_ROW, "global_step/max_steps": f"{step}/80"}) + "\n")
        write(out / "completions.jsonl", json.dumps(TABLE) + "\n")
        write(out / "args.json", "{}")
        write(out / "checkpoint-20/trainer_state.json", "{}")
        (out / "last-checkpoint").symlink_to(out / "checkpoint-20")
        write(out / "runs/events.out.tfevents.1795250449.vm.1.0")
    return root


def channels(run: FoundRun) -> dict[str, tuple[ChannelContent, int]]:
    return {
        found.name: (found.what, found.segment) for found in run.channels if found.what is not ChannelContent.RUN_CONFIG
    }


def test_trl_run(tmp_path: Path) -> None:
    """Every channel once; wandb's debug logs and its copy of the console are left out."""
    (run,) = discover(trl_run(tmp_path / "exp"))
    assert (run.name, run.framework, run.problems) == ("exp", "trl", ())
    assert channels(run) == {
        "train.log": (ChannelContent.CONSOLE, 0),
        "output/checkpoint-*": (ChannelContent.CHECKPOINTS, 0),
        "output/checkpoint-*/trainer_state.json": (ChannelContent.TRAINER_STATE, 0),
        "output/completions/completions_*.parquet": (ChannelContent.COMPLETIONS_PARQUET, 0),
        "output/runs/Nov21_08-14-08_vm/events.out.tfevents.1795248848.vm.1.0": (ChannelContent.TFEVENTS, 0),
        "output/runs/Nov21_08-24-34_vm/events.out.tfevents.1795249474.vm.2.0": (ChannelContent.TFEVENTS, 1),
        "wandb/offline-run-20261121_081408-wjkar9cd/run-wjkar9cd.wandb": (ChannelContent.WANDB_OFFLINE, 0),
    }
    assert [found.name for found in run.channels if found.shows_end] == ["train.log"]
    configs = {found.path for found in run.channels if found.what is ChannelContent.RUN_CONFIG}
    assert configs == {tmp_path / "exp", tmp_path / "exp/output"}


def test_wandbs_copy_of_the_console_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    """It is no proof of how the job ended."""
    (trl_run(tmp_path / "exp") / "train.log").unlink()
    (run,) = discover(tmp_path / "exp")
    (console,) = [found for found in run.channels if found.what is ChannelContent.CONSOLE]
    assert console.name == "wandb/offline-run-20261121_081408-wjkar9cd/files/output.log"
    assert not console.shows_end


def test_a_resumed_ms_swift_run_has_segments(tmp_path: Path) -> None:
    """v1- follows v0-; one run, rooted above `output`."""
    (run,) = discover(swift_run(tmp_path / "16-resume"))
    assert (run.name, run.framework) == ("16-resume", "ms-swift")
    found = channels(run)
    assert found["output/v0-20261121-084049/logging.jsonl"] == (ChannelContent.JSONL, 0)
    assert found["output/v1-20261121-084104/logging.jsonl"] == (ChannelContent.JSONL, 1)
    assert found["output/v1-20261121-084104/completions.jsonl"] == (ChannelContent.COMPLETIONS_JSONL, 1)
    assert found["output/v1-20261121-084104/checkpoint-*"] == (ChannelContent.CHECKPOINTS, 1)
    ends = {channel.name for channel in run.channels if channel.shows_end}
    assert ends == {"train.log", *(name for name in found if name.endswith("logging.jsonl"))}


@pytest.mark.parametrize(
    ("below", "name"),
    [
        ("", "16-resume"),
        ("output", "16-resume/output"),
        ("output/v0-20261121-084049", "v0-20261121-084049"),
    ],
)
def test_naming_a_part_of_a_run(tmp_path: Path, below: str, name: str) -> None:
    """Whatever folder of a run is named, one run is found there."""
    (run,) = discover(swift_run(tmp_path / "16-resume") / below)
    assert run.name == name


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("exp9/output/logging.jsonl", "exp9/output/logging"),
        ("exp9/train.log", "exp9/train"),
        ("exp9/logging/metrics.jsonl", "exp9/logging/metrics"),
        ("exp9/output/train-20261121.log", "train-20261121"),
        ("exp9/output/night.log", "night"),
    ],
)
def test_a_log_of_a_common_name_is_named_with_its_folders(tmp_path: Path, log: str, name: str) -> None:
    """As far up as it takes to say which job it is."""
    (run,) = discover(write(tmp_path / log, CONSOLE))
    assert run.name == name


def test_a_folder_of_a_common_name_is_named_with_its_parent(tmp_path: Path) -> None:
    write(tmp_path / "exp9/logging/night.log", CONSOLE)
    (run,) = discover(tmp_path / "exp9/logging")
    assert run.name == "exp9/logging"


def test_a_folder_of_folders_of_runs(tmp_path: Path) -> None:
    """Runs called `runs/x/run` and below: names unique, parents prepended where they clash."""
    trl_run(tmp_path / "runs/a/one")
    swift_run(tmp_path / "runs/b/one")
    swift_run(tmp_path / "runs/b/two")
    found = discover(tmp_path)
    assert [run.name for run in found] == ["a/one", "b/one", "two"]
    assert [run.root for run in found] == [tmp_path / "runs" / name for name in ("a/one", "b/one", "b/two")]


def test_a_folder_of_logs_is_a_folder_of_runs(tmp_path: Path) -> None:
    """Each lone log is a run; stdout and stderr of one job are one."""
    for name in ("a.log", "b.log"):
        write(tmp_path / name, CRASH)
    write(tmp_path / "slurm-7.out", CONSOLE)
    write(tmp_path / "slurm-7.err", CRASH)
    found = discover(tmp_path)
    assert [(run.name, len(run.channels)) for run in found] == [("a", 1), ("b", 1), ("slurm-7", 2)]
    assert not any(channel.in_folder for run in found for channel in run.channels)


def test_one_log_beside_an_output_folder_of_any_name(tmp_path: Path) -> None:
    """`python train.py > job.log` with output_dir=my-model."""
    write(tmp_path / "job/job.log", CONSOLE)
    write(tmp_path / "job/my-model/checkpoint-5/trainer_state.json", "{}")
    (run,) = discover(tmp_path)
    assert run.name == "job"
    assert set(channels(run)) == {"job.log", "my-model/checkpoint-*", "my-model/checkpoint-*/trainer_state.json"}


def test_a_log_named_directly_may_have_any_name(tmp_path: Path) -> None:
    """It is a run by itself; a JSON row in it makes it a metrics file."""
    (console,) = discover(write(tmp_path / "weird.name", CONSOLE))
    assert [(c.what, c.in_folder, c.shows_end) for c in console.channels] == [(ChannelContent.CONSOLE, False, True)]
    (rows,) = discover(write(tmp_path / "excerpt.txt", json.dumps(SWIFT_ROW) + "\n"))
    assert rows.channels[0].what is ChannelContent.JSONL
    (empty,) = discover(write(tmp_path / "started.log"))
    assert (empty.channels[0].what, empty.problems) == (ChannelContent.CONSOLE, ())


def test_a_glob(tmp_path: Path) -> None:
    """Patterns give folders and files; files that are no logs are passed over."""
    trl_run(tmp_path / "exp1")
    swift_run(tmp_path / "exp2")
    write(tmp_path / "exp-notes.md", "loss\n")
    assert [run.name for run in discover(tmp_path / "exp*")] == ["exp1", "exp2"]


def test_nothing_to_find(tmp_path: Path) -> None:
    """Empty and missing folders, data sets, texts about training: no runs and no complaint."""
    write(tmp_path / "data/train.jsonl", '{"prompt": "a", "completion": "b"}\n')
    write(tmp_path / "data/requirements.txt", "trl==1.16.0\n")
    write(tmp_path / "notes.txt", "try grpo with trl tomorrow\n")
    write(tmp_path / "config.json", '{"loss": "dapo"}')
    (tmp_path / "empty").mkdir()
    finder = Discoverer()
    assert finder.discover(tmp_path, tmp_path / "empty", tmp_path / "missing") == []
    assert finder.problems == ()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """It is reported, and allow_roots opens it."""
    outside = trl_run(tmp_path / "outside")
    run = write(tmp_path / "run/train.log", CONSOLE).parent
    (run / "elsewhere").symlink_to(outside / "output")
    (found,) = discover(run)
    assert set(channels(found)) == {"train.log"}
    assert "allow_roots" in found.problems[0]
    (opened,) = discover(run, [outside])
    assert "elsewhere/checkpoint-*" in channels(opened)


def test_who_names_a_link_means_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    """A stop file is made there; what only matches a pattern may have been made a link by anybody who trains there."""
    run = write(tmp_path / "runs/exp7/train.log", CONSOLE).parent
    latest = tmp_path / "latest"
    latest.symlink_to(run)
    for named in (latest, latest / "train.log"):
        (found,) = discover(named)
        assert (found.root, found.home) == (latest, run)
    (found,) = discover(tmp_path / "lat*")
    assert (found.root, found.home) == (latest, None)
    (found,) = discover(tmp_path / "runs")
    assert (found.root, found.home) == (run, None)


def test_links_inside_the_folder_repeat_nothing(tmp_path: Path) -> None:
    """latest.log is train.log; a link into a hidden folder is the only way to a log."""
    write(tmp_path / "train.log", CONSOLE)
    (tmp_path / "latest.log").symlink_to(tmp_path / "train.log")
    write(tmp_path / "output/checkpoint-1/trainer_state.json", "{}")
    write(tmp_path / ".store/7.log", CONSOLE)
    (tmp_path / "stdout.log").symlink_to(tmp_path / ".store/7.log")
    (run,) = discover(tmp_path)
    consoles = [name for name, (what, _) in channels(run).items() if what is ChannelContent.CONSOLE]
    assert consoles == ["stdout.log", "train.log"]


def test_a_link_to_itself_stops_no_search(tmp_path: Path) -> None:
    """Below a folder, as a folder's name and as a log's: the run beside it is found, and such a path is no run."""
    run = write(tmp_path / "run/train.log", CONSOLE).parent
    for name in ("me.jsonl", "output", "completions_00001.parquet"):
        (run / name).symlink_to(run / name)
    (run / "there.log").symlink_to(run / "back.log")
    (run / "back.log").symlink_to(run / "there.log")
    (found,) = discover(tmp_path)
    assert set(channels(found)) == {"train.log"}
    assert discover(run / "me.jsonl") == []
    assert discover(run / "output/below/train.log") == []


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    """A FIFO named train.log, a binary file named logging.jsonl, rows cut in half, deep nesting in a row."""
    os.mkfifo(tmp_path / "train.log")
    (tmp_path / "logging.jsonl").write_bytes(bytes(range(256)) * 64)
    write(tmp_path / "nested.jsonl", "[" * 100_000)
    write(tmp_path / "half.jsonl", '{"loss": 0.1, "rew')
    (run,) = discover(tmp_path)
    assert set(channels(run)) == {"logging.jsonl"}
    assert run.problems == (f"{tmp_path}/logging.jsonl: no row of metrics or completions in its first lines",)


def test_an_unreadable_folder_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other runs are found all the same (scandir is made to fail, as root may read everything)."""
    swift_run(tmp_path / "good")
    (tmp_path / "secret").mkdir()
    real = os.scandir

    def scandir(path: Path) -> object:
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(look.os, "scandir", scandir)
    finder = Discoverer()
    assert [run.name for run in finder.discover(tmp_path)] == ["good"]
    assert finder.problems == (f"{tmp_path}/secret: can't be listed: Permission denied",)


def test_a_log_that_may_not_be_read_is_named_beside_others_and_found_once_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but its rights changes: neither its size nor its time."""
    other, run = (
        trl_run(tmp_path / "other"),
        write(tmp_path / "run/logging.jsonl", '{"loss": 0.1, "reward": 0.2, "kl": 0}\n' * 3),
    )
    read = sniff._by_content

    def with_rights(path: Path, *given: Any, **named: Any) -> Any:
        if path.stat().st_mode & 0o777 == 0:  # as a user who is not root has it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path, *given, **named)

    monkeypatch.setattr(sniff, "_by_content", with_rights)
    run.chmod(0)
    discoverer = Discoverer()
    assert [found.root for found in discoverer.discover(tmp_path)] == [other]
    assert discoverer.problems == (f"{run}: can't be read: Permission denied",)
    run.chmod(0o600)
    looks = [discoverer.discover(tmp_path) for _ in range(MOST_CHEAP + 1)]
    assert {found.root for found in looks[-1]} == {other, run.parent}
    assert discoverer.problems == ()


def test_the_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many entries and too deep folders end the search with a line that says so."""
    monkeypatch.setattr(look, "MAX_ENTRIES", 10)
    for number in range(20):
        write(tmp_path / f"many/{number}.md")
    write(tmp_path / "d/1/2/3/4/5/6/7/train.log", CONSOLE)
    finder = Discoverer()
    assert finder.discover(tmp_path / "many") == []
    assert "search ended after 10 entries" in finder.problems[0]
    assert finder.discover(tmp_path / "d") == []
    assert "deeper than 6 folders" in finder.problems[0]


def test_asking_again_sees_what_is_new(tmp_path: Path) -> None:
    """The same answer object for the same files; a file that grows into a log is found then."""
    log = write(tmp_path / "train.log", "starting\n")
    finder = Discoverer()
    assert finder.discover(tmp_path) == []
    write(log, "starting\n" + CONSOLE)
    first = finder.discover(tmp_path)
    assert [run.name for run in first] == [tmp_path.name]
    assert finder.discover(tmp_path) == first
    log.unlink()
    assert finder.discover(tmp_path) == []


def test_a_log_stays_a_log_while_it_grows(tmp_path: Path) -> None:
    """What it was recognised by is far from both ends later on."""
    noise = "generating ...\n" * 40_000  # 600 KB, more than both windows
    log = write(tmp_path / "train.log", noise + CONSOLE)
    finder = Discoverer()
    assert len(finder.discover(tmp_path)) == 1
    write(log, noise + CONSOLE + noise)
    assert len(finder.discover(tmp_path)) == 1
    assert discover(tmp_path) == []
    write(log, "restarted\n")
    assert len(finder.discover(tmp_path)) == 1  # it was read: what it says by now is news of it
    write(tmp_path / "other", "restarted\n").rename(log)
    assert finder.discover(tmp_path) == []


def streams() -> tuple[str, str]:
    """A real log as its job's stdout (rows) and stderr (nothing but bars)."""
    text = gzip.decompress((RUNS / "trl-0.24.0-19-crash-resume/train.log.gz").read_bytes()).decode()
    rows = "".join(f"{row}\n" for row in re.findall(r"\{'loss'.*\}", text))
    bars = "".join(f"\r{bar}" for bar in re.findall(r"[ \d]{3}%\|[^|\r\n]*\| \d+/100 \[[^\]\r\n]*\]", text))
    assert rows.count("\n") > 20
    assert bars.count("%|") > 20
    return rows, bars


@pytest.mark.parametrize(
    ("out", "err"), [("train.out", "train.err"), ("slurm-12.out", "slurm-12.err"), ("a.log", "b.err")]
)
@pytest.mark.parametrize("folders", [["output/checkpoint-20"], []])
def test_a_stderr_of_bars_belongs_to_the_stdout_beside_it(
    tmp_path: Path, out: str, err: str, folders: list[str]
) -> None:
    rows, bars = streams()
    write(tmp_path / "exp" / out, rows)
    write(tmp_path / "exp" / err, bars)
    for folder in folders:
        write(tmp_path / "exp" / folder / "trainer_state.json", "{}")
    (run,) = discover(tmp_path / "exp")
    assert {name for name, (what, _) in channels(run).items() if what is ChannelContent.CONSOLE} == {out, err}


def test_bars_alone_or_of_an_unknown_job_are_nothing(tmp_path: Path) -> None:
    rows, bars = streams()
    write(tmp_path / "alone/train.err", bars)
    assert discover(tmp_path / "alone") == []
    for name in ("a.out", "b.out"):
        write(tmp_path / "two" / name, rows)
    write(tmp_path / "two/c.err", bars)
    write(tmp_path / "two/b.err", bars)
    found = {run.name: set(channels(run)) for run in discover(tmp_path / "two")}
    assert found == {"a": {"a.out"}, "b": {"b.out", "b.err"}}


def test_event_files_of_one_folder_follow_each_other(tmp_path: Path) -> None:
    """A job that is started again writes into the same folder (verl); a second writer of one process does not count."""
    names = [
        "events.out.tfevents.1795250001.gpu7.100.0",
        "events.out.tfevents.1795250002.gpu7.100.1",
        "events.out.tfevents.1795260000.gpu7.200.0",
        "events.out.tfevents.1795270000.gpu7.200.0",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (run,) = discover(tmp_path)
    order = {channel.name: channel.segment for channel in run.channels if channel.what is ChannelContent.TFEVENTS}
    assert order == dict(zip(names, [0, 0, 1, 2], strict=True))


def test_wandb_s_runs_follow_each_other_by_time(tmp_path: Path) -> None:
    """Online and offline runs of one job, whatever their ids."""
    for folder in ("run-20261121_101010-zzzzzzzz", "offline-run-20261121_111111-aaaaaaaa"):
        (tmp_path / "wandb" / folder).mkdir(parents=True)
        (tmp_path / "wandb" / folder / f"run-{folder[-8:]}.wandb").write_bytes(b"")
    (run,) = discover(tmp_path)
    order = {
        channel.path.name: channel.segment for channel in run.channels if channel.what is ChannelContent.WANDB_OFFLINE
    }
    assert order == {"run-zzzzzzzz.wandb": 0, "run-aaaaaaaa.wandb": 1}


def test_the_link_to_wandb_s_own_log_is_no_problem(tmp_path: Path) -> None:
    logs = tmp_path / "run" / "wandb" / "offline-run-20261121_111111-aaaaaaaa" / "logs"
    logs.mkdir(parents=True)
    (logs.parent / "run-aaaaaaaa.wandb").write_bytes(b"")
    outside = tmp_path / "core.log"
    outside.write_text("{}")
    (logs / "debug-core.log").symlink_to(outside)
    (run,) = discover(tmp_path / "run")
    assert run.problems == ()


@pytest.mark.parametrize(
    "lines", sorted((Path(__file__).parents[1] / "frameworks/lines").glob("*.log")), ids=lambda path: path.stem
)
def test_the_framework_whose_rows_a_log_prints_is_named(lines: Path, tmp_path: Path) -> None:
    """Before any row is resolved; what is built on TRL and prints the same rows is named by its rows."""
    write(tmp_path / "run/train.log", lines.read_text("utf-8"))
    (run,) = discover(tmp_path)
    built_on_trl = {"axolotl", "open-r1", "unsloth", "trl"}
    assert run.framework == ("trl" if lines.stem in built_on_trl else lines.stem)


def test_a_framework_outranks_the_one_it_is_built_on(tmp_path: Path) -> None:
    """Unsloth's log and the table of completions that TRL's trainer writes beside it."""
    write(tmp_path / "train.log", "Unsloth: Will patch your computer\n" + CONSOLE)
    write(tmp_path / "completions/completions_00001.parquet")
    assert [run.framework for run in discover(tmp_path)] == ["unsloth"]


@pytest.mark.parametrize("hole", [1, 500, 5_000, 300_000, 1_000_000])
@pytest.mark.parametrize(
    ("name", "what"), [("train.log", ChannelContent.CONSOLE), ("logging.jsonl", ChannelContent.JSONL)]
)
def test_a_hole_at_the_head_hides_no_log(tmp_path: Path, hole: int, name: str, what: ChannelContent) -> None:
    """A job that writes with ``>`` goes on at its old offset after copytruncate: what lies before it reads as NULs."""
    text = CONSOLE if what is ChannelContent.CONSOLE else json.dumps(SWIFT_ROW) + "\n"
    with (tmp_path / name).open("wb") as log:
        log.truncate(hole)
        log.seek(hole)
        log.write(text.encode() * 40)
    (run,) = discover(tmp_path)
    assert [channel.what for channel in run.channels if channel.name == name] == [what]


def test_a_file_that_was_read_before_is_not_passed_over(tmp_path: Path) -> None:
    """By this process, and, as the state says, by one before it; others that look like that stay no logs."""
    log = write(tmp_path / "train.log", CONSOLE)
    write(tmp_path / "other.log", "nothing that anybody knows\n")
    finder = Discoverer()
    before = finder.discover(tmp_path)
    log.write_text("nothing that anybody knows\n")
    assert finder.discover(tmp_path) == before
    assert discover(tmp_path) == []
    (run,) = Discoverer((), {str(log)}).discover(tmp_path)
    assert [(channel.name, channel.what) for channel in run.channels][-1] == ("train.log", ChannelContent.CONSOLE)
    assert run.problems == ()
