"""Collects settings from the readers of scripts and files; ``load_launch`` turns them into a ``Launch``."""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.credentials import masked
from grpo_watch.engine.records import Scalar, Setting
from grpo_watch.errors import SourceError, UsageError
from grpo_watch.sources.files.reading import open_regular

MAX_TEXT = 1000
"""Longest text value kept; longer ones are whole configurations printed into one."""

MAX_LIST = 100_000
"""Most items kept of a literal list (paths of a dataset's shards)."""

_SECRET_NAME = re.compile(
    r"(?:^|[._-])(?:token|secret|passwd|password|credentials?|api_?key|access_?key|key)$", re.IGNORECASE
)


def joined(values: Iterable[object]) -> str:
    """The items of a list joined by spaces, as on a command line; nested items are left out."""
    return " ".join(str(value) for value in values if isinstance(value, (str, int, float, bool)))[:MAX_LIST]


class Argument(NamedTuple):
    """One argument of a command.

    ``unknown`` names the part whose value is unknown (``text`` then shows its source), else it is empty.
    """

    text: str
    origin: str
    unknown: str = ""


LIMIT = 10**15
_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def compute(
    node: ast.expr,
    leaf: Callable[[ast.expr], float | None],
    divide: Callable[[float, float], float] = operator.truediv,
) -> float | None:
    """Evaluate arithmetic over numbers and the operands that ``leaf`` knows; None if any operand is unknown."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = compute(node.operand, leaf, divide)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return leaf(node)
    apply = divide if isinstance(node.op, ast.Div) else _OPERATIONS.get(type(node.op))
    left, right = compute(node.left, leaf, divide), compute(node.right, leaf, divide)
    if apply is None or left is None or right is None:
        return None
    try:
        value = apply(left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return value if abs(value) < LIMIT else None


UNIMPORTANT = re.compile(
    r"(?:.*[._])?(?:output_dir|logging_dir|dir|path|url|host|port|ports|run_name|name|model|model_name_or_path|seed|plugins"
    r"|project|report_to|logger|reward_funcs|reward_weights|system|bf16|fp16|kwargs|entity|pretrain|base_model|load|save"
    r"|hub_model_id|push_to_hub|use_wandb|wandb_project|rank|addr|tags|callbacks)"
)
"""Settings that change neither batches nor learning: an unknown value is not reported."""

MAX_BYTES = 4 << 20
"""Largest launch file read; configurations are a thousandth of it."""

KEPT_VARIABLES = frozenset(
    {"NPROC_PER_NODE", "NNODES", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "NUM_PROCESSES", "NUM_GPUS", "NODE_RANK"}
    | {"ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_WORLD_SIZE", "ACCELERATE_CONFIG_FILE"}
    | {"MAX_PIXELS", "MIN_PIXELS", "VIDEO_MAX_PIXELS", "FPS_MAX_FRAMES", "NFRAMES", "SIZE_FACTOR"}
    | {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "VLLM_USE_V1", "SWIFT_SINGLE_DEVICE_MODE", "RAY_ADDRESS"}
)
"""Variables that change batches, devices or lengths; all others are ignored."""


@dataclass(slots=True)
class LaunchDraft:
    """A launch being read.

    ``folder`` is where the command would run, ``folders`` are all places to look for a relative path, ``environ`` the
    variables of the calling process. ``read`` names the inputs in the order they were read. ``runs_here``: the launch
    would use packages of this environment. ``packages`` are versions of other packages. ``recorded``: the settings were
    recorded by a run after some were derived from others. ``run_folder``: the existing run that is read, whose files
    are named relative to it. ``environment_of``: the interpreter or environment that the launch would use.
    """

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    version: str | None = None
    version_origin: str = ""
    settings: dict[str, Setting] = field(default_factory=dict)
    environment: dict[str, Setting] = field(default_factory=dict)
    deepspeed: dict[str, Setting] = field(default_factory=dict)
    world_size: Setting | None = None
    peft: bool | None = None
    complete: bool = True
    folders: list[Path] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    runs_here: bool = False
    packages: dict[str, Setting] = field(default_factory=dict)
    recorded: bool = False
    run_folder: Path | None = None
    environment_of: Path | None = None

    def put(self, name: str, value: object, origin: str) -> None:
        """Store a setting (the later one wins), a credential without its value; a null removes an earlier value."""
        if _SECRET_NAME.search(name):
            return
        if isinstance(value, str) and masked(value) != value:
            self.settings[name] = Setting(None, origin)
        elif value is None:
            self.settings.pop(name, None)
        elif isinstance(value, (list, tuple)):
            if value:  # an empty list equals no list
                self.settings[name] = Setting(joined(value), origin)
        elif isinstance(value, (int, float, bool)) or (isinstance(value, str) and len(value) <= MAX_TEXT):
            self.settings[name] = Setting(value, origin)

    def put_unknown(self, name: str, origin: str, why: str) -> None:
        """Record a setting whose value can't be determined."""
        if _SECRET_NAME.search(name):
            return
        self.settings[name] = Setting(None, origin)
        if not UNIMPORTANT.fullmatch(name):
            self.note(f"{origin}: {name} is {masked(why)}")

    def note(self, text: str) -> None:
        """Report an unread part of the launch once, with credentials masked."""
        line = masked(" ".join(text.split()))
        if line not in self.unresolved:
            self.unresolved.append(line)

    def leave_open(self, text: str = "") -> None:
        """Note that further settings may be given that can't be read, and why."""
        self.complete = False
        if text:
            self.note(text)

    def name_input(self, text: str) -> None:
        """Note an input that was read."""
        if text not in self.read:
            self.read.append(text)

    def value(self, *names: str) -> Scalar:
        """The value of the first given setting of these names, else None."""
        return next((self.settings[name].value for name in names if name in self.settings), None)

    def variable(self, name: str) -> Setting | None:
        """A variable set by the launch, else by the calling process."""
        if name in self.environment:
            return self.environment[name]
        return Setting(self.environ[name], f"${name}") if self.environ.get(name) else None

    def path_of(self, name: str) -> Path | None:
        """The existing file or folder of a relative or absolute name, else None."""
        if name.startswith("~/") and self.environ.get("HOME"):
            name = self.environ["HOME"] + name[1:]
        places = [folder / name for folder in (self.folder, *self.folders)]
        try:
            return next((place for place in places if place.exists()), None)
        except (OSError, ValueError):  # a name too long, or with a NUL
            return None

    def text_of(self, path: Path) -> str:
        """The text of a launch file.

        Raises:
            UsageError: it can't be read; the message names file and reason.
        """
        try:
            return read_text(path)
        except ValueError as error:
            raise UsageError(f"{self.shown(path)}: {error}") from None

    def shown(self, path: Path) -> str:
        """A path for messages: relative within the run that is read, or below the launch's folder."""
        bases = (self.run_folder, self.folder)
        base = next((base for base in bases if base is not None and path.is_relative_to(base)), None)
        return path.as_posix() if base is None else path.relative_to(base).as_posix()


def read_text(path: Path) -> str:
    """The text of a launch file.

    Raises:
        ValueError: it is not a regular file, can't be read, or is too large for a launch file.
    """
    try:
        with os.fdopen(open_regular(path, (Path(os.path.realpath(path)).parent,)), "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, SourceError) as error:
        raise ValueError(getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than the {MAX_BYTES} bytes that are read of a launch file")
    return data.decode("utf-8", "replace")
