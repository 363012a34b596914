"""Recognises console lines other than rows: ends, resumes, crashes, planned steps, framework and version."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.advisories.entries import packages
from grpo_watch.advisories.judge import VERSION_OF
from grpo_watch.credentials import masked
from grpo_watch.engine.records import EventKind, Setting
from grpo_watch.frameworks.framework import ConsoleMark, MarkKind
from grpo_watch.frameworks.line_reader import marks
from grpo_watch.frameworks.python_literal import atom
from grpo_watch.frameworks.setting_names import canonical_settings
from grpo_watch.sources.rows.bars import title_step
from grpo_watch.sources.settings.printed_config import PRINTED, begins, printed_sizes

TRACEBACK = b"Traceback (most recent call last)"
PREFIX = re.compile(
    rb"(?:\[(?:rank|default)\d{1,5}\]:? ?|\(\w{1,40}(?:_\w{1,9})? pid=\d{1,9}[^)]{0,60}\) ?|\x1b\[[\d;]{0,10}m|"
    rb"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]\s]{1,80}\] ?)?|\d{1,4}: (?=\S)){0,6}"
)
"""What torchrun, Ray, vLLM, srun and terminals put before a line of a traceback."""
EXCEPTION = re.compile(rb"(?:\w{1,60}\.){0,10}[A-Z]\w{1,80}(?:\(\w{1,80}\))?(?::(?: .*)?)?$", re.DOTALL)
LONGEST_TEXT = 300
KILLED = re.compile(
    rb"^\s{0,20}Killed\s{0,20}$|: line \d{1,9}: {0,20}\d{1,9} Killed|^\d{1,9} Killed |exitcode\s{0,10}: -9\b|SIGKILL|"
    rb"srun: error: .{0,200}(?:Killed|Out Of Memory|Segmentation|Bus error|Aborted|Terminated)|"
    rb"slurmstepd: error: .{0,200}(?:oom[-_ ]kill|CANCELLED)|"
    rb"exits with return code = -\d{1,2}\b|exit (?:code|status):? (?:134|135|137|139|143)\b|DUE TO TIME LIMIT"
)
REWARD_NONE = b"All reward functions returned None for the following kwargs"
REWARD_FAILED = re.compile(
    rb"Set reward to 0|\[Timeout\] Task timeout: |\[Error\] Task failed: |Error in math_verify compute_score: |"
    rb"Sandbox API call failed\. Last error"
)
"""AReaL (#548) and verl's reward managers: the reward of one completion counts as 0."""
TOOL_FAILED = re.compile(
    rb"Error when executing (?:tool|code): |Tool\] Execution failed: |Search API call failed\. Last error"
)
"""verl's tool agents: one call of a tool failed. A tool prints one such line per call."""
FAILED: Mapping[str, re.Pattern[bytes]] = MappingProxyType(
    {"reward_failures": REWARD_FAILED, "tool_errors": TOOL_FAILED}
)
"""Metrics that count lines between rows, with the patterns of these lines."""
REPEATED = re.compile(rb"\[repeated (\d{1,9})x across cluster\]")
"""How Ray marks a line that stands for equal lines of several workers."""
PACKAGE_SIGNS = (
    rb"(?m:^\s{0,8}[A-Za-z][\w.-]{0,40}==\d)|LLM engine \(v\d|API server version \d|"
    rb"Speed info: version=\d"
)
PACKAGES = tuple(
    (package, re.compile(pattern))
    for package, pattern in (
        ("", rb"^\s{0,8}([A-Za-z][\w.-]{0,40})==(\d[\w.+!]{0,40})\s{0,8}$"),  # pip freeze
        ("vllm", rb"LLM engine \(v(\d[\w.+]{0,40})\)"),
        ("vllm", rb"vLLM API server version (\d[\w.+]{0,40})"),
        ("vllm", rb"Transformers: \d.{0,60} vLLM: (\d[\d.]{0,20}\d)"),
        ("deepspeed", rb"DeepSpeed info: version=(\d[\w.+]{0,40})"),
    )
)
"""Lines that print the version of a package."""
TROUBLE = (
    rb"[A-Za-z](?:Error|Exception|Interrupt)\b|A worker died|Segmentation fault|Bus error|hit an exception|what\(\):",
    rb"Exception (?:ignored in|in (?:thread|callback) )|--- Logging error|Task exception was|Root Cause \(",
    rb"(?:Watchdog|watchdog) |WorkNCCL|OutOfMemoryError|: CUDA |Fatal Python|terminate called|core dumped",
    rb"Assertion `|HYDRA_FULL_ERROR|Could not override '|Error merging override|Missing mandatory value: ",
    rb"exitcode|exits with return|exit (?:code|status)|python[\d.]{0,5}: (?:can't open|Error while|No module)",
    rb"equal chunk|after normalization|[Tt]raining (?:failed|crashed|aborted)|[Ff]atal error",
    rb"divisible by|multiple of|at least 2 generations|greater than 1|be both configured|must equal per_device",
)
"""Signs of lines that are passed to ``Tracebacks``."""
OTHERS = (
    rb"Traceback \(most recent|Killed|SIGKILL|(?:srun|slurmstepd): error|DUE TO TIME",
    rb"^\s{0,12}File \"|^\S{0,60} pid=\S{0,60}\s{1,9}File \"|All reward functions returned None|Step \d",
    PACKAGE_SIGNS,
    *(pattern.pattern for pattern in FAILED.values()),
    *dict.fromkeys(mark.sign.pattern for mark in marks() if mark.sign),
)
SIGNS = re.compile(b"(" + b"|".join(TROUBLE) + b")|" + b"|".join(OTHERS))
"""One search that dismisses almost every line; the group matches trouble."""
FRAME = re.compile(rb'^\s{0,12}File "[^"\n]{1,400}", line \d{1,7}(?:, in |\s*$)')
"""A traceback frame; without the line that opens a traceback, the log was cut before it."""
FAR = 4096
"""Bytes of a line that are searched for signs."""
WHOLE = re.compile(r"[0-9]{1,18}")
LONGEST_COMMAND = 64 << 10
FLAG = re.compile(r"--([A-Za-z_][\w.-]{0,80})(?:=(.*))?", re.DOTALL)
ORIGIN = "command line in the log"


NUMBERS: Mapping[MarkKind, str] = MappingProxyType(
    {MarkKind.RESUMED: "resumed", MarkKind.TOTAL: "total", MarkKind.EPOCH: "epoch"}
)
"""Marks that consist of one number, and the number's meaning."""


class ConsoleMarkers(NamedTuple):
    """Markers found in a line; most fields are None or empty.

    ``failed``: the metric that counts such lines between rows, whatever framework writes the rows.
    """

    title: int | None = None
    traceback: bool = False
    trouble: bool = False
    failed: str = ""
    event: EventKind | None = None
    text: str = ""
    resumed: int | None = None
    total: int | None = None
    epoch: int | None = None
    framework: str = ""
    version: str | None = None
    settings: Mapping[str, Setting] | None = None
    sizes: Mapping[str, Setting] | None = None
    opens: bool = False


def find_markers(data: bytes) -> ConsoleMarkers | None:
    """Return the markers in a line; None for almost every line."""
    sign = SIGNS.search(data, 0, FAR)
    if sign is None:
        return None
    if (step := title_step(data)) is not None:
        return ConsoleMarkers(title=step)
    for metric, pattern in FAILED.items():
        if pattern.match(sign[0]):
            return ConsoleMarkers(failed=metric)
    if TRACEBACK in data[:FAR] or sign[0].endswith(b'File "'):
        return ConsoleMarkers(traceback=TRACEBACK in data[:FAR] or FRAME.search(data, 0, FAR) is not None)
    if REWARD_NONE in data or KILLED.search(data, 0, FAR):
        event = EventKind.REWARD_NONE if REWARD_NONE in data else EventKind.KILLED
        return ConsoleMarkers(event=event, text=readable(data))
    return ConsoleMarkers(trouble=True) if sign[1] is not None else _of_frameworks(data)


def repeated(line: bytes) -> int:
    """Return how many lines a line stands for: more than one if Ray merged equal lines of several workers."""
    found = REPEATED.search(line)
    return int(found[1]) if found is not None else 1


def _of_frameworks(data: bytes) -> ConsoleMarkers:
    if (found := _first(data, MarkKind.FINISHED)) is not None:
        return ConsoleMarkers(event=EventKind.FINISHED, framework=found[0].framework)
    for kind, field in NUMBERS.items():
        if (found := _first(data, kind)) is not None:
            number: dict[str, Any] = {field: int(found[1][1])}
            return ConsoleMarkers(**number)
    if (found := _first(data, MarkKind.COMMAND)) is not None:
        mark, command = found
        if (settings := command_settings(data[command.end() :], mark.framework)) is not None:
            return ConsoleMarkers(framework=mark.framework, settings=settings)
    versions = printed_versions(data)
    if (found := _first(data, MarkKind.VERSION)) is not None:
        return ConsoleMarkers(framework=found[0].framework, version=found[1][1].decode(), sizes=versions)
    found = _first(data, MarkKind.NAME)
    framework = found[0].framework if found is not None else ""
    return ConsoleMarkers(framework=framework, sizes=versions or printed_sizes(data), opens=begins(data))


def printed_versions(data: bytes) -> dict[str, Setting] | None:
    """Return the package version that a line of ``pip freeze`` or a banner prints; None for other lines."""
    if (own := _first(data, MarkKind.PACKAGE)) is not None:
        return {f"{VERSION_OF}{own[0].framework}": Setting(own[1][1].decode(), PRINTED)}
    for package, pattern in PACKAGES:
        if (found := pattern.search(data, 0, FAR)) is not None:
            name = package or found[1].decode().lower().replace("_", "-")
            version = found[found.re.groups].decode()
            return {f"{VERSION_OF}{name}": Setting(version, PRINTED)} if name in packages() else None
    return None


def _first(data: bytes, kind: MarkKind) -> tuple[ConsoleMark, re.Match[bytes]] | None:
    for mark in marks(kind):
        if (found := mark.pattern.search(data)) is not None:
            return mark, found
    return None


def command_settings(arguments: bytes, framework: str) -> dict[str, Setting] | None:
    """Return the settings in a command line printed by ``set -x`` or a launcher; None if there are none."""
    if len(arguments) > LONGEST_COMMAND:
        return None
    try:
        words = shlex.split(arguments.decode("utf-8", "replace"), posix=True)
    except ValueError:  # an unclosed quote: the command continues in the next line
        return None
    given: dict[str, object] = {}
    for place, word in enumerate(words):
        flag = FLAG.fullmatch(word)
        if flag is None:
            continue
        following = words[place + 1] if place + 1 < len(words) else "--"
        text = flag[2] if flag[2] is not None else None if following.startswith("--") else following
        given[flag[1].replace("-", "_")] = True if text is None else int(text) if WHOLE.fullmatch(text) else atom(text)
    return canonical_settings(given, framework, ORIGIN) or None


def exception(line: bytes) -> str | None:
    """Return ``Type: message`` if the line is the last of a traceback, else None."""
    begin = PREFIX.match(line)
    rest = line[begin.end() if begin is not None else 0 :][:4096]
    if not rest or rest[:1].isspace() or EXCEPTION.match(rest) is None:
        return None
    return readable(rest)


def readable(text: bytes) -> str:
    """Return at most 300 characters for people, on one line, without control characters and likely credentials."""
    decoded = re.sub(r"\x1b\[[\d;?]{0,10}[A-Za-z]", "", text[:4096].decode("utf-8", "replace"))
    return masked(" ".join("".join(c if c.isprintable() else " " for c in decoded).split()))[:LONGEST_TEXT]
