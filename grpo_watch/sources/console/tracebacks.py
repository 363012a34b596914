"""Follows a console's tracebacks and launchers' reports, and extracts the error that each of them names."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.refusals import refused
from grpo_watch.engine.records import EventKind
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.sources.console.markers import (
    LONGEST_TEXT,
    PREFIX,
    TRACEBACK,
    exception,
    readable,
)

LONGEST_TRACEBACK = 2000
"""Lines after which a traceback without an exception is dropped."""
ASIDE = re.compile(
    rb"Exception ignored in|Exception in (?:thread|callback) |--- Logging error ---|Task exception was never retrieved"
)
"""What Python prints before the traceback of an error that does not end the process."""
LOGGED = re.compile(rb"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b.{0,200}Traceback \(most recent call last\)")
"""A traceback passed to a logger: the error was caught. A job that dies of it prints it again."""
CHAINED = re.compile(rb"During handling of the above exception|The above exception was the direct cause")
REACH = 3
"""Lines allowed between such a line and its traceback: asyncio prints the task there."""
FATAL = re.compile(
    rb"(?:\w{1,60}\.){0,5}(?:OutOfMemoryError|RayTaskError|ActorDiedError|RayActorError|WorkerCrashedError|NodeDiedError|"
    rb"ActorUnavailableError|EngineDeadError|ChildFailedError|DistBackendError|DistNetworkError|SignalException|"
    rb"ProcessExitedException|ProcessRaisedException|AcceleratorError)\b(?:\([\w.]{1,80}\))?: |"
    rb"RuntimeError: (?:CUDA |NCCL |CUBLAS|cuDNN|DataLoader worker|Engine core|\[[^\]\n]{0,200}gloo)|"
    rb"Fatal Python error: |terminate called after throwing an instance of 'c10::|"
    rb"(?:\(raylet[^)\n]{0,80}\) )?A worker died or was killed while executing a task|\s{0,9}what\(\):\s{1,9}"
)
"""Errors of the device, of Ray and of launchers; a later row shows that training continued anyway."""
CORE = re.compile(
    rb".{0,200}(?:(?:Segmentation fault|Aborted|Bus error) {1,20}\(core dumped\)|"
    rb"^(?:Segmentation fault|Bus error)\s{0,9}$)"
)
CODE = re.compile(rb"Job entrypoint command failed with exit code|exits with return code = [1-9]")
OWN_END = re.compile(
    rb"\b(?:ERROR|CRITICAL|FATAL)\b.{0,120}"
    rb"(?:[Tt]raining (?:failed|crashed|aborted)(?:\s{0,9}$|[:!.]| (?:with|due|because|after)\b)|[Ff]atal error)"
)
"""A program's own logger reports that training failed with a caught error; a later row shows that it continued."""
NO_MEMORY = re.compile("OutOfMemoryError|CUDA out of memory")
PHASES = (
    ("generation", re.compile(rb"vllm|sglang|, in _?generate|rollout")),
    ("the backward pass", re.compile(rb", in backward\b|_engine_run_backward")),
    ("the optimizer", re.compile(rb"[\\/]optim[\\/]|optimizer|, in step\b")),
)
"""Where memory ran out, by patterns of a traceback's frames; the last match counts."""
PACKAGES = {name.removeprefix("ms-").replace("-", "_"): name for name in frameworks()}
"""Package folders of the frameworks' code, and the framework of each."""
OF_PACKAGE = re.compile(
    rb'File "[^"\n]{0,400}[\\/]('
    + "|".join(PACKAGES).encode()
    + rb')(?:_compiled_cache|(?:_train|_zoo)?[\\/](?!(?:[^"\n]{0,300}[\\/])?(?:site|dist)-packages)[^"\n\\/]{1,100})'
    rb'[\\/][^"\n]{0,300}\.py"'
)
"""A frame in a framework's package; a folder directly above scripts or installed packages is the user's."""
LAUNCHER = "the launcher reports: "
ENGINE = re.compile(
    rb"\b(?:EngineCore|Scheduler|TpModelWorkerClient|DetokenizerManager|ModelRunner|Engine)\b.{0,60}"
    rb"(?:hit an exception|fatal error|failed to start)"
)
"""A part of an inference engine reports its death; the traceback after it was not caught."""
BARE = re.compile(rb"(?:\w{1,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)(?:: .{1,400})?\s{0,9}$")
ASSERTED = re.compile(rb"([\w.-]{1,80}\.cuh?):(\d{1,7}): .{0,300}Assertion `([^`'\n]{1,160})[`'] failed")
"""A kernel's assertion: its process can't use the device any more, and an excerpt may end before the traceback."""
REFUSED_BY_HYDRA = re.compile(rb"(?:Could not override '|Error merging override |Missing mandatory value: )")
"""Hydra 1.3's report of a setting that it rejects, several lines before ``HYDRA_ENDS``."""
HYDRA_ENDS = b"Set the environment variable HYDRA_FULL_ERROR=1"
NO_PROGRAM = re.compile(rb"(?:\S{1,200}/)?python[\d.]{0,5}: (?:can't open|Error while|No module)")
"""CPython's error for a missing script or module: nothing ran."""
CLOSING = 12
"""Lines of text allowed after the exception that ended a log with a cut traceback."""
"""Lines that name the end of a process without a traceback."""
WATCHDOG = re.compile(
    rb"Watchdog caught collective|collective operation timeout: WorkNCCL|"
    rb"process group watchdog thread terminated with exception"
)
"""Message of torch's NCCL process group before it aborts; a narrow terminal wraps the line anywhere."""
NCCL_TEXT = "NCCL watchdog: "
FAILED = re.compile(rb"failed \(exitcode: (-?\d{1,3})\) local_rank: (\d{1,5})")
"""torchrun's line about the worker that failed first."""
ROOT_CAUSE = b"Root Cause (first observed failure)"
BLOCK = re.compile(rb"\s{0,10}(rank|exitcode)\s{0,10}: (-?\d{1,5})")
BLOCK_LINES = 10
"""Lines of torchrun's block about the root cause."""
ROOT_SAYS = "torchrun's root cause"
ABORTED = -6
SIGNALS = {
    -6: "SIGABRT, which a native library or the NCCL watchdog raises",
    -7: "SIGBUS, most often too little shared memory",
    -9: "SIGKILL, most often for lack of host memory",
    -11: "SIGSEGV, a crash in native code",
    -15: "SIGTERM, from the scheduler or a user",
}
MOST_RANKS = 8
FAR = 400
"""Characters of a line that are searched for these signs."""


class Sign(NamedTuple):
    """An error that may have ended the job."""

    kind: EventKind
    text: str


class Tracebacks(Struct):
    """Takes the text lines of a console in order.

    ``whose``: the framework of the first frame in framework code; ``implied``: the traceback was recognised by a frame
    alone.
    """

    implied: bool = False
    whose: str = ""
    _phase: str = ""
    _of_rank: dict[str, str] = field(default_factory=dict)
    _lines: int = 0
    _aside: int = 0
    _chain: int = 0
    _block: int = 0
    _ignored: bool = False
    _frame: str = ""
    _root_rank: str = ""
    _watchdog: str = ""
    _last: str = ""
    _since: int = 0

    def clear(self) -> None:
        """Note a row: the job continued despite any failure."""
        self._of_rank = {}
        self._lines = self._aside = self._chain = self._block = self._since = 0
        self._ignored, self._frame, self._root_rank, self._watchdog, self._last = False, "", "", "", ""

    @property
    def inside(self) -> bool:
        """Whether a traceback is open."""
        return self._lines > 0

    @property
    def open(self) -> bool:
        """Whether the next line may belong to the lines before."""
        return bool(self._lines or self._aside or self._chain or self._block)

    def begin(self, data: bytes) -> None:
        """Begin a traceback at this line."""
        if not self._lines:
            logged = LOGGED.search(data, 0, FAR) is not None and ENGINE.search(data, 0, FAR) is None
            self._ignored, self._frame, self._phase, self.whose = self._aside > 0 or logged, "", "", ""
        self._last, self._since = "", 0
        self.implied = TRACEBACK not in data if not self._lines else self.implied
        self._lines, self._aside, self._chain = 1, 0, 0

    def passed(self) -> None:
        """Note a line of text that names no error."""
        if self._last:
            self._since += 1
            self._last = self._last if self._since <= CLOSING else ""

    def sign_of(self, data: bytes, rank: str = "") -> Sign | None:
        """Return the sign in a line of text, if any; ``rank``: of the process that printed it, if known."""
        if self._lines:
            return self._traced(data, rank)
        chained = self._chain > 0 and CHAINED.search(data) is not None
        self._aside = REACH if chained or ASIDE.search(data, 0, FAR) else max(0, self._aside - 1)
        self._chain = max(0, self._chain - 1)
        if self._block or ROOT_CAUSE in data:
            return self._reported(data)
        if (failed := FAILED.search(data)) is not None:
            return self._failed(failed[2].decode(), int(failed[1]))
        return self._bare(data)

    def flush(self) -> Sign | None:
        """Return the sign of a traceback that the end of the log cut off, with the frame printed last."""
        inside, ignored, frame, last = self.inside, self._ignored, self._frame, self._last
        self.clear()
        if not inside or ignored:
            return Sign(EventKind.TRACEBACK, last) if last else None
        return Sign(EventKind.TRACEBACK, f"the log ends inside a traceback{frame}")

    def _traced(self, data: bytes, rank: str) -> Sign | None:
        """Take a line of a traceback: the first unindented one that looks like an exception ends it."""
        text = exception(data)
        if text is None and CORE.match(data):
            self._lines = 0
            return Sign(EventKind.KILLED, readable(data))
        if text is None:
            self._lines = (self._lines + 1) % LONGEST_TRACEBACK
            self._frame = _frame(data) or self._frame
            if not self.whose and (package := OF_PACKAGE.search(data)) is not None:
                self.whose = PACKAGES[package[1].decode()]
            self._phase = next((name for name, frame in PHASES if frame.search(data, 0, FAR)), self._phase)
            return None
        self._lines, self._chain = 0, REACH if self._ignored else 0
        if self._ignored:
            return None
        if self._phase and NO_MEMORY.search(text):
            text = f"{text[: LONGEST_TEXT - 30]} (in {self._phase})"
        if rank and len(self._of_rank) < MOST_RANKS:
            self._of_rank[rank] = text
        return Sign(EventKind.TRACEBACK, text)

    def _bare(self, data: bytes) -> Sign | None:
        begin = PREFIX.match(data)
        rest = data[begin.end() if begin is not None else 0 :]
        if WATCHDOG.search(rest, 0, FAR):
            self._watchdog = self._watchdog or (NCCL_TEXT + readable(rest))[:LONGEST_TEXT]
            return Sign(EventKind.TRACEBACK, self._watchdog)
        text = readable(rest)
        if CORE.match(rest):
            return Sign(EventKind.KILLED, text)
        named = text.startswith(("ValueError: ", "AssertionError: ")) and refused(text)
        if named or FATAL.match(rest) or OWN_END.search(rest, 0, FAR):
            return Sign(EventKind.TRACEBACK, text)
        if CODE.search(rest, 0, FAR):
            return Sign(EventKind.TRACEBACK, (LAUNCHER + text)[:LONGEST_TEXT])
        if (asserted := ASSERTED.search(rest)) is not None:
            text = "CUDA assertion failed: {2} ({0}:{1})".format(*(readable(part) for part in asserted.groups()))
        if HYDRA_ENDS in rest and self._last:
            return Sign(EventKind.TRACEBACK, self._last)
        if REFUSED_BY_HYDRA.match(rest):
            text = f"Hydra: {text}"[:LONGEST_TEXT]
        if asserted is not None or BARE.match(rest) or REFUSED_BY_HYDRA.match(rest) or NO_PROGRAM.match(rest):
            self._last, self._since = text, 0
        else:
            self.passed()
        return None

    def _reported(self, data: bytes) -> Sign | None:
        if ROOT_CAUSE in data:
            self._block, self._root_rank = BLOCK_LINES, "?"
            return None
        self._block -= 1
        begin = PREFIX.match(data)
        found = BLOCK.match(data, begin.end() if begin is not None else 0)
        if found is not None and found[1] == b"rank":
            self._root_rank = found[2].decode()
        elif found is not None:
            self._block = 0
            return self._failed(self._root_rank, int(found[2]))
        return None

    def _failed(self, rank: str, code: int) -> Sign | None:
        root = f" ({ROOT_SAYS}: rank {rank}, exit code {code})"
        if code == ABORTED and self._watchdog:
            return Sign(EventKind.TRACEBACK, self._watchdog[: LONGEST_TEXT - len(root)] + root)
        if code in SIGNALS:
            return Sign(EventKind.KILLED, SIGNALS[code] + root)
        text = self._of_rank.get(rank)
        if text:
            return Sign(EventKind.TRACEBACK, text[: LONGEST_TEXT - len(root)] + root)
        return Sign(EventKind.TRACEBACK, f"{LAUNCHER}rank {rank} FAILED with exit code {code}") if code else None


def _frame(data: bytes) -> str:
    """Return the location of a traceback frame, without the folders."""
    found = re.search(
        rb'File "(?:[^"\n]{0,400}[\\/])?([^"\\/\n]{1,80})", line (\d{1,7})(?:, in ([\w<>.]{1,80}))?', data
    )
    if found is None:
        return ""
    inside = f" in {found[3].decode('utf-8', 'replace')}" if found[3] else ""
    return f", at {found[1].decode('utf-8', 'replace')}:{int(found[2])}{inside}"
