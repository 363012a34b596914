"""Types of values in ``grpo-watch.yaml``: paths, secrets, addresses, rates, shares, settings of a run.

Secrets must not appear in logs or in ``grpo-watch config``, so they are read from files, and URLs are masked.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.config.document import LABEL_NAME, KeyProblem
from grpo_watch.engine.records import Scalar
from grpo_watch.engine.reward_functions import weights_in
from grpo_watch.errors import ConfigError, FilePlace

MAX_BYTES = 16_384
_BROKEN = "invalid host or port in the URL; percent-encode special characters in user name and password (%XX)"


class SecretFile:
    """The file of a secret; its content is read at each use and never stored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretFile) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return f"{self.path} (content not shown)"

    def read(self) -> str:
        """The content without surrounding white space.

        Raises:
            ConfigError: the file can't be read, is open to every user of the machine, not a regular file, empty,
                larger than 16 KB or not text.
        """
        place = FilePlace(str(self.path))
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                _refuse_open_files(os.fstat(stream.fileno()).st_mode, place)
                content = stream.read(MAX_BYTES + 1)
        except OSError as problem:
            raise ConfigError(f"the secret can't be read: {problem.strerror or problem}", place) from None
        if len(content) > MAX_BYTES:
            raise ConfigError(f"the secret is larger than {MAX_BYTES} bytes", place)
        try:
            text = content.decode().strip()
        except UnicodeDecodeError:
            raise ConfigError("the secret is not UTF-8 text", place) from None
        if not text:
            raise ConfigError("the secret is empty", place)
        return text

    def read_url(self) -> Url:
        """The content as a URL.

        Raises:
            ConfigError: as ``read``, or the content is not a URL.
        """
        try:
            return Url(self.read())
        except ValueError as problem:  # of Url, whose text quotes nothing
            raise ConfigError(f"the secret is not a URL: {problem}", FilePlace(str(self.path))) from None


def _refuse_open_files(mode: int, place: FilePlace) -> None:
    """Refuse a secret that everybody can read; a group may (Kubernetes gives files to one)."""
    if not stat.S_ISREG(mode):
        raise ConfigError("the secret can't be read: not a regular file", place)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError("the secret file is readable or writable by every user", place, f"chmod 600 {place.file}")


class Url:
    """An ``http(s)`` URL; ``str()`` hides user, password and query, ``reveal()`` returns them.

    Raises:
        ValueError: the text is not such a URL; the message quotes no part of it.
    """

    def __init__(self, full: str) -> None:
        self.full = full
        try:
            parts = urlsplit(full)
            _ = parts.port
        except ValueError:  # its message quotes a part of the URL, which may be the password
            raise ValueError(_BROKEN) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("a URL must start with http:// or https:// and contain a host")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.full == other.full

    def __hash__(self) -> int:
        return hash(self.full)

    def reveal(self) -> str:
        """The URL as it was given."""
        return self.full

    def place(self) -> str:
        """Host and port, the default name of a receiver."""
        return urlsplit(self.full).netloc.rpartition("@")[2]

    def __str__(self) -> str:
        parts = urlsplit(self.full)
        user, at, host = parts.netloc.rpartition("@")
        shown = f"{'***' if user else ''}{at}{host}"
        return parts._replace(netloc=shown, query="***" if parts.query else "", fragment="").geturl()


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frozen, and refuses unknown keys; ``checks`` raise a ValueError for a value that can't be used."""

    checks: ClassVar[Mapping[str, Callable[[Any], object]]] = MappingProxyType({})

    def __post_init__(self) -> None:
        for key, check in self.checks.items():
            try:
                check(getattr(self, key))
            except ValueError as problem:  # noqa: PERF203  which key it was
                raise KeyProblem(key, str(problem)) from None


class RunPath(str):
    """A run as named in a settings file: a path or pattern, an address (``wandb://…``), or ``-``."""

    __slots__ = ()


LabelName: TypeAlias = Annotated[str, msgspec.Meta(pattern=LABEL_NAME)]
NotEmpty: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Model = TypeVar("_Model", bound=msgspec.Struct)


def converted(model: type[_Model], value: object, folder: Path = Path(), *, strict: bool = True) -> _Model:
    """Convert plain values to a model; relative paths are below ``folder``, ``~`` is the home folder.

    ``strict`` False accepts texts for numbers and booleans, as in environment variables.

    Raises:
        msgspec.ValidationError: the value does not fit the model; ``first_problem`` says why.
    """
    return msgspec.convert(value, model, strict=strict, dec_hook=partial(_read, folder))


_WANTED: Mapping[type, str] = MappingProxyType(
    {
        SecretFile: "must be the path of a file that contains the secret",
        Path: "must be a path",
        Url: "a URL must start with http:// or https://",
    }
)


def _read(folder: Path, kind: type[Any], value: object) -> Any:
    if isinstance(value, kind):  # from a flag
        return value
    if not (isinstance(value, str) and (value or kind is not SecretFile)):
        raise ValueError(_WANTED.get(kind, "must be a text"))  # msgspec adds the place to a ValueError
    if kind is Url or (kind is RunPath and (value == "-" or "://" in value)):
        return kind(value)
    if kind is RunPath and not value:
        raise ValueError("must not be empty")
    try:
        located = folder / Path(value).expanduser()
    except RuntimeError:  # ~nosuchuser, or ~ of a user without a home
        raise ValueError(f"{value.partition('/')[0]} has no home folder") from None
    return located if kind is Path else kind(located)


RATE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]?)i?B?(?:/s)?", re.IGNORECASE)


def bytes_per_second(text: str) -> float:
    """Parse ``200MB``, ``1.5G`` or ``1000000``.

    Raises:
        ValueError: the text is not a rate above 0.
    """
    found = RATE.fullmatch(text.strip())
    rate = float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " ") if found else 0.0
    if rate <= 0:
        raise ValueError(f"{text!r} is not a rate; use bytes per second, e.g. 200MB")
    return rate


NUMBERS = frozenset(
    {"beta", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"}
    | {"generation_batch_size", "num_iterations", "world_size", "max_steps", "num_train_epochs", "logging_steps"}
    | {"save_steps", "eval_steps", "learning_rate", "warmup_steps", "warmup_ratio", "max_completion_length"}
    | {"temperature", "weight_decay", "deepspeed_stage", "seed", "dataset_size", "prompts_per_step", "prompts_drawn"}
    | {"most_steps", "steps_printed", "model_temperature", "top_p", "top_k", "request_seed", "parallel_tool_calls"}
)
BOOLEANS = frozenset(
    {"kl_implies_beta", "log_completions", "sync_ref_model", "adapter", "adapter_continued", "gradient_checkpointing"}
    | {"steps_counted", "use_vllm", "vllm_enable_lora", "dynamic_sample", "mask_truncated_completions", "do_sample"}
)
LEAST = {"num_generations": 1}


def wrong_value(name: str, value: Scalar) -> str | None:
    """The error in a setting's value (``beta: 'abc' is not a number``); None if there is none.

    Texts that spell a number or a boolean count as such; None (not known) is never wrong.
    """
    if value is None:
        return None
    if name in BOOLEANS and str(value).lower() not in {"true", "false"}:
        return f"{name}: {value!r} is not true or false"
    if name in NUMBERS:
        least = LEAST.get(name, 0)
        number = _number(value)
        if number is None or not math.isfinite(number):
            return f"{name}: {value!r} is not a number"
        if number < least:
            return f"{name}: {value!r} is below {least}"
    if name == "reward_weights" and not weights_in(value):
        return f"{name}: {value!r} is not a list of numbers, one per reward function (e.g. 1 -0.5 0)"
    return None


def _number(value: Scalar) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except (ValueError, OverflowError):
        return None
