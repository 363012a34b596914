"""The shape of ``grpo-watch.yaml``: frozen models that refuse unknown keys and hold every default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from fnmatch import fnmatch, fnmatchcase
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from grpo_watch.config.document import nearest
from grpo_watch.config.fields import (
    Address,
    FilePath,
    LabelName,
    Model,
    Secret,
    Shard,
    Url,
    bytes_per_second,
    located,
    wrong_value,
)
from grpo_watch.config.sinks import Sink
from grpo_watch.engine.metric_names import LABELLED, METRICS, SETTINGS, split_label

MAX_PORT = 65_535
STEP = "step"


def split_listen(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``:PORT`` (loopback) or ``[IPV6]:PORT``; port 0 picks a free one.

    Raises:
        ValueError: it is none of these.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT or (":" in bare and bare == host):
        raise ValueError(f"{text!r} is not HOST:PORT (e.g. 127.0.0.1:9853, :0, [::1]:9853)")
    return bare or "127.0.0.1", int(port)


def _located_run(path: str, info: ValidationInfo) -> str:
    return path if path == "-" or "://" in path else str(located(Path(path), info))


def _known_settings(settings: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if name not in SETTINGS:
            fix = nearest(name, SETTINGS)
            raise ValueError(f"unknown setting {name!r}{f' ({fix})' if fix else ''}")
        if wrong := wrong_value(name, value):
            raise ValueError(wrong)
    return settings


def _known_columns(columns: dict[str, str]) -> dict[str, str]:
    known = [STEP, *METRICS]
    for name in columns:
        metric, label = split_label(name)
        if metric not in known or (label is not None) != (metric in LABELLED):
            fix = nearest(name, known)
            raise ValueError(f"unknown metric {name!r}{f' ({fix})' if fix else ''}")
    if len(set(columns.values())) < len(columns):
        raise ValueError("a column is named twice")
    return columns


Columns: TypeAlias = Annotated[dict[str, Annotated[str, Field(min_length=1)]], AfterValidator(_known_columns)]
RunSettings: TypeAlias = Annotated[dict[str, bool | int | float | str | None], AfterValidator(_known_settings)]


class RunEntry(Model):
    """A run, or a pattern of runs, to watch; ``name`` may hold ``{folder}``.

    ``columns`` says what the run's logs call a metric: canonical metric (or ``step``) → its own name.
    """

    path: Annotated[str, Field(min_length=1), AfterValidator(_located_run)]
    name: Annotated[str, Field(min_length=1)] = "{folder}"
    labels: dict[LabelName, str] = Field(default_factory=dict)
    settings: RunSettings = Field(default_factory=dict)
    columns: Columns = Field(default_factory=dict)


def entry_for(root: Path, entries: Sequence[RunEntry], files: Iterable[Path] = (), remote: str = "") -> RunEntry | None:
    """The first entry whose path (a folder, a file or a glob) is the run's root, one of its parents or its files.

    ``remote`` is the address of a run on a server; its entry names it or its project, in which ``*`` may be.
    """
    if remote:
        known = (remote, remote.rpartition("/")[0])
        return next((one for one in entries if any(fnmatch(place, one.path.rstrip("/")) for place in known)), None)
    places = [str(place) for place in (*(file.resolve() for file in files), root.resolve(), *root.resolve().parents)]
    for entry in entries:
        wanted = str(Path(entry.path).expanduser().absolute())
        if any(fnmatch(place, wanted) for place in places):
            return entry
    return None


class Retention(Model):
    """How long an ended run's rows are kept."""

    days: Annotated[float, Field(gt=0)] = 14
    max_mb: Annotated[float, Field(ge=1)] = 500


class Mute(Model):
    """Findings of matching runs and rules are kept but not sent until ``until``."""

    run: str = "*"
    rule: str = "*"
    until: datetime | date | None = None
    reason: str = ""

    @property
    def end(self) -> float:
        """When it ends (Unix seconds): a day lasts until its end, a time without a zone is the machine's own."""
        if self.until is None:
            return inf
        if isinstance(self.until, datetime):
            return self.until.timestamp()
        return (datetime.combine(self.until, time()).astimezone() + timedelta(days=1)).timestamp()

    def covers(self, run: str, rule: str, now: float) -> bool:
        """Whether it keeps the findings of this run and rule back at ``now``."""
        return now < self.end and fnmatchcase(run, self.run) and fnmatchcase(rule, self.rule)


def _page(url: str) -> str:
    if url and (url != str(Url(url)) or set(url) & set('?#"<>\\ \t\n')):
        raise ValueError("must be a URL without user, query and fragment, e.g. https://grpo.example.org/")
    return url and f"{url.rstrip('/')}/"


class Web(Model):
    """Who may open the status page and the API besides loopback peers.

    By default a client on this machine needs the token that the daemon makes and prints as a link; ``open`` lets it in
    without. With ``token_file`` every client needs that token, wherever it is; with ``tls_client_ca`` every client,
    also of ``/metrics``, needs a certificate that this authority signed. ``url`` is where people open the page, such as
    a proxy's address; empty: derived from where the daemon listens.
    """

    open: bool = False
    token_file: Secret | None = None
    tls_cert: FilePath | None = None
    tls_key: Secret | None = None
    tls_client_ca: FilePath | None = None
    allowed_hosts: tuple[str, ...] = ()
    url: Annotated[str, AfterValidator(_page)] = ""

    @model_validator(mode="after")
    def _certificate_has_a_key(self) -> Web:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("set both tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        if self.open and (self.token_file is not None or self.tls_client_ca is not None):
            raise ValueError("open: true contradicts token_file and tls_client_ca")
        return self


class Privacy(Model):
    """``examples`` keeps redacted excerpts (80 characters) of completions in findings.

    ``completions`` shows how prompts and completions of the newest batches begin (240 characters) in the page's table;
    without ``examples`` it has no effect. ``messages`` sends the excerpts of findings to receivers, too.
    """

    examples: bool = True
    completions: bool = False
    messages: bool = False


class WandbServer(Model):
    """How runs named ``wandb://…`` are read; ``base_url`` None: ``WANDB_BASE_URL``, else wandb's own default.

    The API key is never a setting: it comes from ``WANDB_API_KEY`` or ``~/.netrc``.
    """

    base_url: Address | None = None
    requests_per_minute: Annotated[float, Field(ge=1)] = 60


def _runbook(template: str) -> str:
    if template:
        Url(template)
        if "{rule}" not in template:
            raise ValueError("must be a URL that contains {rule}, e.g. https://wiki.example.org/grpo/{rule}")
    return template


def _rate(text: str) -> str:
    if text:
        bytes_per_second(text)
    return text


def _shard(text: str) -> str:
    Shard.parse(text)
    return text


class Settings(Model):
    """Everything that can be set; ``state_dir`` None means the default for the watched paths.

    ``shard`` is this daemon's share of the runs (``2/8``; empty: all).
    ``io_limit`` is how fast weights are read (``200MB`` per second; empty: as fast as they come).

    ``language`` is what rules say what is wrong and what to do in.
    ``runbook_url`` is where a rule's runbook is found, with ``{rule}`` for its name; empty: messages name the command.
    """

    runs: tuple[RunEntry, ...] = ()
    listen: str = "127.0.0.1:9853"
    state_dir: FilePath | None = None
    retention: Retention = Retention()
    rules: tuple[FilePath, ...] = ()
    notify_backlog: Literal["live", "all", "none"] = "live"
    runbook_url: Annotated[str, AfterValidator(_runbook)] = ""
    sinks: tuple[Sink, ...] = ()
    mute: tuple[Mute, ...] = ()
    web: Web = Web()
    allow_roots: tuple[FilePath, ...] = ()
    privacy: Privacy = Privacy()
    io_limit: Annotated[str, AfterValidator(_rate)] = ""
    shard: Annotated[str, AfterValidator(_shard)] = ""
    wandb: WandbServer = WandbServer()
    language: Literal["en", "zh"] = "en"

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        split_listen(value)
        return value
