"""The shape of ``grpo-watch.yaml``: frozen models that refuse unknown keys and hold every default."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from grpo_watch.config.document import nearest
from grpo_watch.config.secrets import SecretFile, Url
from grpo_watch.config.values import wrong_value
from grpo_watch.core.names import LABELLED, METRICS, SETTINGS, split_label
from grpo_watch.core.records import Severity

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


def _located(path: Path, info: ValidationInfo) -> Path:
    """Relative to the folder of the file that names it; ``~`` is the home folder."""
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / path.expanduser()


def _located_run(path: str, info: ValidationInfo) -> str:
    return path if path == "-" or "://" in path else str(_located(Path(path), info))


def _secret_file(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value:
        raise ValueError("the path of a file that holds the secret")
    return SecretFile(_located(Path(value), info))


def _url(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a URL begins with http:// or https://")  # noqa: TRY004  pydantic reports ValueError
    return Url(value)


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
    if columns and STEP not in columns:
        raise ValueError("the column that holds the step is missing (step: …)")
    if len(set(columns.values())) < len(columns):
        raise ValueError("one column is named twice")
    return columns


FilePath: TypeAlias = Annotated[Path, AfterValidator(_located)]
Secret: TypeAlias = Annotated[SecretFile, BeforeValidator(_secret_file)]
Address: TypeAlias = Annotated[Url, BeforeValidator(_url)]
LabelName: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Columns: TypeAlias = Annotated[dict[str, Annotated[str, Field(min_length=1)]], AfterValidator(_known_columns)]
RunSettings: TypeAlias = Annotated[dict[str, bool | int | float | str | None], AfterValidator(_known_settings)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunEntry(_Model):
    """A run, or a pattern of runs, to watch; ``name`` may hold ``{folder}``.

    ``columns`` says what a CSV or JSONL of unknown origin holds: canonical metric (or ``step``) → its own name.
    """

    path: Annotated[str, Field(min_length=1), AfterValidator(_located_run)]
    name: Annotated[str, Field(min_length=1)] = "{folder}"
    labels: dict[LabelName, str] = {}
    settings: RunSettings = {}
    columns: Columns = {}


class Retention(_Model):
    """How long an ended run's rows are kept."""

    days: Annotated[float, Field(gt=0)] = 14
    max_mb: Annotated[float, Field(ge=1)] = 500


class _Sink(_Model):
    min_severity: Severity = Severity.WARNING


class AlertmanagerSink(_Sink):
    """Alertmanager's own API, version 2."""

    type: Literal["alertmanager"]
    url: Address


class SlackSink(_Sink):
    """A Slack incoming webhook, whose URL is a secret."""

    type: Literal["slack"]
    webhook_url_file: Secret


class WebhookSink(_Sink):
    """Any HTTP endpoint; ``secret_file`` signs the body (HMAC)."""

    type: Literal["webhook"]
    url: Address
    secret_file: Secret | None = None


class PushgatewaySink(_Sink):
    """A Prometheus Pushgateway."""

    type: Literal["pushgateway"]
    url: Address


class TextfileSink(_Sink):
    """A file for node_exporter's textfile collector."""

    type: Literal["textfile"]
    path: FilePath


class AppriseSink(_Sink):
    """Every service that apprise knows; its URL holds the credentials."""

    type: Literal["apprise"]
    url_file: Secret


Sink: TypeAlias = Annotated[
    AlertmanagerSink | SlackSink | WebhookSink | PushgatewaySink | TextfileSink | AppriseSink,
    Field(discriminator="type"),
]


class Mute(_Model):
    """Findings of matching runs and rules are kept but not sent until ``until``."""

    run: str = "*"
    rule: str = "*"
    until: datetime | date | None = None
    reason: str = ""


class Web(_Model):
    """Who may open the status page and the API besides loopback peers."""

    token_file: Secret | None = None
    tls_cert: FilePath | None = None
    tls_key: Secret | None = None
    allowed_hosts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _certificate_has_a_key(self) -> Web:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key come together")
        return self


class Privacy(_Model):
    """``examples`` keeps redacted excerpts (80 characters) of completions in findings."""

    examples: bool = True


class WandbServer(_Model):
    """How runs named ``wandb://…`` are read; ``base_url`` None: ``WANDB_BASE_URL``, else wandb's own default.

    The API key is never a setting: it comes from ``WANDB_API_KEY`` or ``~/.netrc``.
    """

    base_url: Address | None = None
    requests_per_minute: Annotated[float, Field(ge=1)] = 60


class Settings(_Model):
    """Everything that can be set; ``state_dir`` None means the default for the watched paths."""

    runs: tuple[RunEntry, ...] = ()
    listen: str = "127.0.0.1:9853"
    state_dir: FilePath | None = None
    retention: Retention = Retention()
    rules: tuple[FilePath, ...] = ()
    notify_backlog: Literal["live", "all", "none"] = "live"
    sinks: tuple[Sink, ...] = ()
    mute: tuple[Mute, ...] = ()
    web: Web = Web()
    allow_roots: tuple[FilePath, ...] = ()
    privacy: Privacy = Privacy()
    wandb: WandbServer = WandbServer()

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        split_listen(value)
        return value
