"""What a console says of the end of its job: which error ended it, and which ended nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from grpo_watch.engine.records import EventKind, Item, RunConfig, RunEvent
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.discovery.channels import ChannelContent
from grpo_watch.sources.discovery.sniff import Sniffer

TRACE = 'Traceback (most recent call last):\n  File "/srv/job/train.py", line 7, in main\n    step()\n'
TORCHRUN = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 11)
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : node1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 12)
============================================================
"""


def read(text: str, parser: ConsoleParser | None = None) -> list[RunEvent]:
    """The events of a whole log."""
    parser = parser or ConsoleParser("train.log", 0, SourceStats(), {})
    items: list[Item] = []
    for line in text.split("\n"):
        items += parser.feed(line.encode(), None)
    return events([*items, *parser.flush(None)])


def named(text: str) -> list[str | None]:
    """The frameworks that a whole log names."""
    parser = ConsoleParser("train.log", 0, SourceStats(), {})
    items = [item for line in text.split("\n") for item in parser.feed(line.encode(), None)]
    return [item.framework for item in [*items, *parser.flush(None)] if isinstance(item, RunConfig)]


def events(items: Iterable[Item]) -> list[RunEvent]:
    return [item for item in items if isinstance(item, RunEvent)]


def texts(text: str) -> list[str]:
    return [event.text for event in read(text)]


@pytest.mark.parametrize(
    "before",
    [
        "Exception ignored in: <function Pool.__del__ at 0x1>\n",
        "Exception in thread Thread-9 (upload):\n",
        "--- Logging error ---\n",
        "Task exception was never retrieved\nfuture: <Task finished name='T'>\n",
    ],
)
def test_errors_that_python_only_reports_end_nothing(before: str) -> None:
    assert read(f"{before}{TRACE}FileExistsError: lock\n") == []
    assert texts(f"{before}{TRACE}FileExistsError: lock\n{TRACE}ValueError: boom\n") == ["ValueError: boom"]


def test_a_traceback_in_a_logged_message_was_caught() -> None:
    logged = f"(RewardWorker pid=7) ERROR:2026-01-02 03:04:05,678:{TRACE}TypeError: no answer\n"
    assert read(logged) == []
    assert texts(f"{logged}{TRACE}TypeError: no answer\n") == ["TypeError: no answer"]


def test_an_error_chained_to_one_that_is_only_reported_is_one_of_these() -> None:
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert read(f"Exception in thread Thread-9 (upload):\n{TRACE}OSError: full\n{chained}{TRACE}KeyError: 'x'\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "(WorkerDict pid=7) torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered",
        "Fatal Python error: Segmentation fault",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ],
)
def test_a_fatal_line_needs_no_traceback(line: str) -> None:
    (event,) = read(f"loading the model\n{line}\n")
    assert event.kind is EventKind.TRACEBACK
    assert event.text == line.rsplit(") ", maxsplit=1)[-1].rsplit("]: ", maxsplit=1)[-1]


@pytest.mark.parametrize(
    "line",
    [
        "The answer was: torch.OutOfMemoryError: CUDA out of memory",
        "ValueError: the sum must be divisible by three, said the teacher and went on",
        "A number divisible by 6 is even.",
        "the watchdog barked",
    ],
)
def test_a_sentence_about_errors_is_none(line: str) -> None:
    kinds = {event.kind for event in read(f"{line}\n")}
    assert EventKind.KILLED not in kinds
    assert not kinds or line.startswith("ValueError")  # a refusal is judged by its words alone


def test_a_refusal_needs_no_traceback_and_may_stand_before_its_stack() -> None:
    text = "ValueError: generation_batch_size (6) must be divisible by num_generations (4)."
    found = read(f'{text}\n\n  File "/srv/trainer.py", line 3, in _train\n    self.build()\n')
    assert [event.kind for event in found] == [EventKind.TRACEBACK, EventKind.CONFIG_ERROR]
    assert {event.text for event in found} == {text}


@pytest.mark.parametrize(
    "line",
    [
        "[rank3]:[E1 ProcessGroupNCCL.cpp:6] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(Seq=9)",
        "[rank3]:[E1 ProcessGroupNCCL.cpp:6] [Rank 3] Watchdog caught collective\noperation timeout: WorkNCCL(Seq=9)",
        "[rank3]:[E1 ProcessGroupNCCL.cpp:6] [Rank 3] Watchdog\ncaught collective operation timeout: WorkNCCL(Seq=9)",
        "[Rank 3] Some text: process group watchdog thread terminated with exception: unknown",
    ],
)
def test_the_nccl_watchdog_is_an_end_however_the_line_is_wrapped(line: str) -> None:
    found = read(f"{line}\n{line}\n")
    assert len(found) == 1
    assert found[0].text.startswith("NCCL watchdog: ")


def test_a_core_dump_reported_by_the_shell_is_a_kill() -> None:
    (event,) = read("run.sh: line 12:  4242 Segmentation fault      (core dumped) python train.py\n")
    assert event.kind is EventKind.KILLED


@pytest.mark.parametrize(("code", "signal"), [(-11, "SIGSEGV"), (-6, "SIGABRT"), (-9, "SIGKILL")])
def test_the_root_cause_of_torchrun_is_its_signal(code: int, signal: str) -> None:
    found = read(TRACE + TORCHRUN.format(rank=3, code=code))
    assert found[-1].kind is EventKind.KILLED
    assert found[-1].text.startswith(signal)
    assert found[-1].text.endswith(f"(torchrun's root cause: rank 3, exit code {code})")


def test_the_root_cause_of_torchrun_is_the_error_of_the_rank_that_failed_first() -> None:
    first, second = (
        "".join(f"[rank{rank}]: {line}\n" for line in f"{TRACE}{error}".split("\n"))
        for rank, error in ((2, "KeyError: 'answer'"), (0, "RuntimeError: peer is gone"))
    )
    found = read(first + second + TRACE + TORCHRUN.format(rank=2, code=1))
    assert found[-1].text == "KeyError: 'answer' (torchrun's root cause: rank 2, exit code 1)"


def test_the_watchdog_is_what_aborted_the_process() -> None:
    watchdog = "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(Seq=9)\n"
    found = read(watchdog + "E0101 api.py:869] failed (exitcode: -6) local_rank: 0 (pid: 12) of binary: python\n")
    assert found[-1].text.startswith("NCCL watchdog: ")
    assert found[-1].text.endswith("(torchrun's root cause: rank 0, exit code -6)")


def test_a_log_that_ends_inside_a_traceback_says_where() -> None:
    assert texts(TRACE) == ["the log ends inside a traceback, at train.py:7 in main"]


def test_a_row_ends_every_trouble() -> None:
    """The watchdog of one attempt explains no abort of the next."""
    row = "{'loss': 0.1, 'reward': 0.5, 'grad_norm': 1.0, 'epoch': 0.1}\n"
    failed = "failed (exitcode: -6) local_rank: 0 (pid: 12) of binary: python\n"
    found = read("[rank0]: Watchdog caught collective operation timeout\n" + row + failed)
    assert found[-1].text.startswith("SIGABRT")


def test_what_is_known_of_the_ranks_survives_a_restart() -> None:
    """The report of the launcher comes minutes after the error."""
    begin = "".join(f"[rank2]: {line}\n" for line in f"{TRACE}KeyError: 'answer'".split("\n"))
    before = ConsoleParser("train.log", 0, SourceStats(), {})
    for line in begin.split("\n"):
        before.feed(line.encode(), None)
    assert before.idle
    after = ConsoleParser("train.log", 0, SourceStats(), before.state())
    found = read("failed (exitcode: 1) local_rank: 2 (pid: 12) of binary: python\n", after)
    assert [event.text for event in found] == ["KeyError: 'answer' (torchrun's root cause: rank 2, exit code 1)"]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("ValueError: generation_batch_size (6) must be divisible by num_generations (4).\n", True),
        ("(WorkerDict pid=8) 1 GB\ntorch.OutOfMemoryError: CUDA out of memory.\n", True),
        ("[rank2]: Watchdog caught collective operation timeout: WorkNCCL(Seq=9)\n", True),
        ("grpo\ntorch.OutOfMemoryError: CUDA out of memory.\n", True),
        ("torch.OutOfMemoryError: CUDA out of memory.\n", False),  # of whatever lies there
        ("a number divisible by 4\nthe watchdog barked\n", False),
    ],
)
def test_a_file_that_names_the_end_of_a_job_is_its_console(tmp_path: Path, text: str, known: bool) -> None:  # noqa: FBT001
    (tmp_path / "notes.txt").write_text(text)
    found = Sniffer().sniff(tmp_path / "notes.txt", [tmp_path])
    assert (found.what is ChannelContent.CONSOLE) is known


FRAMES = '  File "/usr/lib/ray/worker.py", line 2623, in get\n    values = worker.get_objects(refs)\n'
ENDS = (
    (FRAMES + "ray.exceptions.RayTaskError(ActorDiedError): ray::Actor.fit() (pid=6146, ip=10.0.0.1)\n", "ActorDied"),
    ("RuntimeError: CUDA error: device-side assert triggered\n", "device-side assert"),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n", "low on memory"),
    ("(raylet) A worker died or was killed while executing a task by an unexpected system error.\n", "A worker died"),
    ("(WorkerDict pid=12) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n", "EngineDead"),
    ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n", "TIME LIMIT"),
    ("srun: error: node1: task 0: Killed\n", "Killed"),
    ("Bus error (core dumped)\n", "Bus error"),
    (
        '!!!!!!! Segfault encountered !!!!!!!\n  File "<unknown>", line 0, in PyObject\nSegmentation fault\n',
        "Segmentation",
    ),
    ("RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1\n", "gloo"),
    ("ValueError: Expected all tensors to be on the same device\n", "Expected all tensors"),
    ("OSError: [Errno 28] No space left on device\n", "No space left"),
    ("Job entrypoint command failed with exit code 1, last available logs:\n", "exit code 1"),
    ("[INFO] [launch.py:319:kill] ['python', '-u', 'train.py'] exits with return code = -9\n", "return code = -9"),
    ("terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: illegal access\n", "illegal"),
    (
        (
            "ERROR 01-01 00:00:00 [core.py:390] EngineCore hit an exception: Traceback (most recent call last):\n"
            'ERROR 01-01 00:00:00 [core.py:390]   File "/x/core.py", line 1, in run\n'
            "ERROR 01-01 00:00:00 [core.py:390] torch.OutOfMemoryError: CUDA out of memory.\n"
        ),
        "out of memory",
    ),
    (
        (
            "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n"
            "  exitcode  : 1 (pid: 12)\n"
        ),
        "rank 3 FAILED with exit code 1",
    ),
)


@pytest.mark.parametrize(("text", "cause"), ENDS)
def test_what_ends_a_log_is_named(text: str, cause: str, tmp_path: Path) -> None:
    """Also where its beginning was cut off, in a file that shows no row."""
    assert any(cause in event for event in texts(text))
    path = tmp_path / "excerpt.txt"
    path.write_text(f"torch.distributed\n{text}")
    assert Sniffer().sniff_alone(path, [tmp_path]).what is ChannelContent.CONSOLE


@pytest.mark.parametrize(
    "text",
    [
        "TimeoutError: the sandbox took too long\n" + "working\n" * 20,
        "TimeoutError: the sandbox took too long\n{'loss': 0.1, 'reward': 0.5, 'grad_norm': 0.1}\n",
        FRAMES + "{'loss': 0.1, 'reward': 0.5, 'grad_norm': 0.1}\n",
    ],
)
def test_an_error_that_the_job_went_on_after_is_none(text: str) -> None:
    assert texts(text) == []


OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        ('  File "/x/site-packages/vllm/worker/model_runner.py", line 9, in execute_model\n', "generation"),
        ('  File "/x/torch/autograd/graph.py", line 9, in _engine_run_backward\n', "the backward pass"),
        ('  File "/x/torch/optim/adamw.py", line 9, in step\n', "the optimizer"),
    ],
)
def test_the_frames_show_where_memory_ran_out(frame: str, phase: str) -> None:
    assert texts(f"{TRACE}{frame}{OUT}") == [f"{OUT.strip()} (in {phase})"]
    assert texts(f"{TRACE}{frame}ValueError: boom\n") == ["ValueError: boom"]


def test_a_program_that_logs_the_end_of_its_training_died_of_it() -> None:
    """Two starts in one log, each of which ends so; a row would show that it went on."""
    end = "2025-06-24 13:30:48,637 - __main__ - ERROR - Training failed with error: no module\n"
    start = "2025-06-24 13:34:27,096 - __main__ - INFO - Starting GRPO training\n"
    assert [event.kind for event in read(start + end + start + end)] == [EventKind.TRACEBACK] * 1
    assert "Training failed with error: no module" in texts(start + end)[0]


@pytest.mark.parametrize("text", ["INFO - a fatal error was avoided\n", "ERROR - training failed sample 3, skipped\n"])
def test_a_logged_trouble_is_no_end(text: str) -> None:
    assert texts(text + "working\n" * 20) == []


ASSERTION = "/src/aten/cuda/Gather.cu:88: gather: block: [{n},0,0], thread: [9,0,0] Assertion `i < n` failed.\n"
ASSERTED = "CUDA assertion failed: i < n (Gather.cu:88)"


def test_a_log_that_ends_in_assertions_of_a_kernel_names_the_first() -> None:
    assert texts("loading\n" + "".join(ASSERTION.format(n=n) for n in range(20))) == [ASSERTED]


def test_the_error_that_follows_an_assertion_of_a_kernel_is_the_one_named() -> None:
    error = "RuntimeError: CUDA error: device-side assert triggered"
    assert texts(f"{ASSERTION.format(n=1)}{TRACE}{error}\n") == [error]


def test_a_job_that_goes_on_after_an_assertion_did_not_die_of_it() -> None:
    assert texts(ASSERTION.format(n=1) + "{'loss': 0.5, 'reward': 0.25, 'epoch': 0.1}\n" * 2) == []
    assert texts(ASSERTION.format(n=1) + "evaluating\n" * 20) == []


HYDRA = """+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor.attn=sdpa
Could not override 'actor.attn'.
To append to your config use +actor.attn=sdpa
Key 'attn' is not in struct
    full_key: actor.attn
    object_type=dict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""


def test_a_setting_that_hydra_refuses_ends_the_job() -> None:
    """Hydra 1.3 prints no traceback; the job's shell may go on."""
    assert texts(f"{HYDRA}cleaning up\n") == ["Hydra: Could not override 'actor.attn'."]


def test_hydras_advice_behind_a_traceback_adds_nothing() -> None:
    advice = HYDRA.rstrip().rsplit("\n", 1)[-1]
    assert texts(f"Error executing job with overrides: ['a=1']\n{TRACE}KeyError: 'a'\n\n{advice}\n") == [
        "KeyError: 'a'"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "python: can't open file '/srv/job/train_grpo.py': [Errno 2] No such file or directory",
        "/usr/bin/python3: Error while finding module specification for 'verl.trainer.main_ppo' (x)",
        "/opt/conda/bin/python3.10: No module named trl.scripts.grpo",
    ],
)
def test_a_program_that_is_not_there_ends_the_job_where_nothing_follows(line: str) -> None:
    assert texts(f"+ start\n{line}\n") == [line]
    assert texts(f"{line}\n" + "downloading\n" * 20) == []


@pytest.mark.parametrize(
    ("paths", "framework"),
    [
        (["/opt/nemo-rl/nemo_rl/algorithms/grpo.py"], "nemo-rl"),
        (["/x/site-packages/swift/cli/rlhf.py", "/x/site-packages/trl/trainer/grpo_trainer.py"], "ms-swift"),
        (["/content/unsloth_compiled_cache/UnslothGRPOTrainer.py"], "unsloth"),
        (["/home/me/verl/.venv/lib/site-packages/trl/trainer/grpo_trainer.py"], "trl"),
        (["/home/me/verl/.venv/lib/site-packages/torch/_tensor.py"], None),
        (["/home/me/slimes/train.py"], None),
        (["/home/me/roll/train.py"], None),
        (["/home/me/verl/verl/trainer/main_ppo.py"], "verl"),
    ],
)
def test_a_death_before_any_row_is_of_the_framework_whose_code_it_passed(
    paths: list[str], framework: str | None
) -> None:
    frames = "".join(f'  File "{path}", line 9, in fit\n    go()\n' for path in paths)
    assert named(f"{TRACE}{frames}ValueError: boom\n") == ([framework] if framework else [])


def test_a_failure_that_passed_a_frameworks_code_names_no_loop_that_printed_rows() -> None:
    rows = "".join(f"step {n} loss 0.1 reward 0.{n}\n" for n in range(1, 6))
    frame = '  File "/x/site-packages/trl/trainer/utils.py", line 9, in pad\n'
    assert "trl" not in named(f"{rows}{TRACE}{frame}ValueError: boom\n")


@pytest.mark.parametrize("value", ["0:12:33", "<AverageMeter object at 0x7f12>", "1 / 10", "{1: }"])
def test_a_dictionary_that_is_no_literal_hides_no_traceback(value: str) -> None:
    """It is whole: what follows is no part of it."""
    row = f"{{'loss': 0.1, 'eta': {value}, 'step': 31}}"
    assert [event.text for event in read(f"{row}\n{TRACE}ValueError: boom\n")] == ["ValueError: boom"]
