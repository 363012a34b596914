"""The schema of ``grpo-watch.yaml``: frozen models that refuse unknown keys and hold every default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from fnmatch import fnmatch, fnmatchcase
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from msgspec import Meta

from grpo_watch.config.document import HEADER_NAME, nearest
from grpo_watch.config.fields import (
    LabelName,
    Model,
    NotEmpty,
    RunPath,
    SecretFile,
    Url,
    bytes_per_second,
    wrong_value,
)
from grpo_watch.engine.metric_names import LABELLED, METRICS, SETTINGS, split_label
from grpo_watch.engine.records import Severity

MAX_PORT = 65_535
STEP = "step"


def split_listen(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``:PORT`` (loopback) or ``[IPV6]:PORT``; port 0 picks a free one.

    Raises:
        ValueError: the text is none of these.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT or (":" in bare and bare == host):
        raise ValueError(f"{text!r} is not HOST:PORT (e.g. 127.0.0.1:9853, :0, [::1]:9853)")
    return bare or "127.0.0.1", int(port)


def _known_settings(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if name not in SETTINGS:
            fix = nearest(name, SETTINGS)
            raise ValueError(f"unknown setting {name!r}{f' ({fix})' if fix else ''}")
        if wrong := wrong_value(name, value):
            raise ValueError(wrong)


def _known_columns(columns: dict[str, str]) -> None:
    known = [STEP, *METRICS]
    for name in columns:
        metric, label = split_label(name)
        if metric not in known or (label is not None) != (metric in LABELLED):
            fix = nearest(name, known)
            raise ValueError(f"unknown metric {name!r}{f' ({fix})' if fix else ''}")
    if len(set(columns.values())) < len(columns):
        raise ValueError("a column is named twice")


class RunEntry(Model, frozen=True):
    """A run, or a pattern of runs, to watch; ``name`` may contain ``{folder}``.

    ``columns`` maps canonical metrics (or ``step``) to the names in the run's logs.
    """

    checks = MappingProxyType({"settings": _known_settings, "columns": _known_columns})

    path: RunPath
    name: NotEmpty = "{folder}"
    labels: dict[LabelName, str] = {}
    settings: dict[str, bool | int | float | str | None] = {}
    columns: dict[str, NotEmpty] = {}


def entry_for(root: Path, entries: Sequence[RunEntry], files: Iterable[Path] = (), remote: str = "") -> RunEntry | None:
    """The first entry whose path (a folder, a file or a glob) is the run's root, one of its parents or its files.

    ``remote`` is the address of a run on a server; its entry names it or its project, which may contain ``*``.
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


class Retention(Model, frozen=True):
    """How long an ended run's rows are kept."""

    days: Annotated[float, Meta(gt=0)] = 14
    max_mb: Annotated[float, Meta(ge=1)] = 500


def _day(until: object) -> None:
    if not isinstance(until, date | None):  # a datetime is also a date
        raise ValueError("must be a day (2027-01-31) or a moment (2027-01-31 12:00:00), without quotes")  # noqa: TRY004


class Mute(Model, frozen=True):
    """Findings of matching runs and rules are kept but not sent until ``until``, a date or a moment."""

    checks = MappingProxyType({"until": _day})

    run: str = "*"
    rule: str = "*"
    until: Annotated[Any, Meta(extra_json_schema={"type": ["string", "null"], "format": "date"})] = None
    reason: str = ""

    @property
    def end(self) -> float:
        """The end (Unix seconds): a date lasts until the end of that day, a time without a zone is local."""
        if self.until is None:
            return inf
        if isinstance(self.until, datetime):
            return self.until.timestamp()
        return (datetime.combine(self.until, time()).astimezone() + timedelta(days=1)).timestamp()

    def covers(self, run: str, rule: str, now: float) -> bool:
        """Whether it mutes findings of this run and rule at ``now``."""
        return now < self.end and fnmatchcase(run, self.run) and fnmatchcase(rule, self.rule)


def _page(url: str) -> None:
    if url and (url != str(Url(url)) or set(url) & set('?#"<>\\ \t\n')):
        raise ValueError("must be a URL without user, query and fragment, e.g. https://grpo.example.org/")


class Web(Model, frozen=True):
    """Who may open the status page and the API besides loopback peers.

    By default a client on this machine needs the token that the daemon generates and prints in a link; ``open`` admits
    it without. With ``token_file`` every client needs that token, wherever it is; with ``tls_client_ca`` every client,
    also of ``/metrics``, needs a certificate that this authority signed. ``url`` is where people open the page, such as
    a proxy's address; empty: derived from the listen address.
    """

    checks = MappingProxyType({"url": _page})

    open: bool = False
    token_file: SecretFile | None = None
    tls_cert: Path | None = None
    tls_key: SecretFile | None = None
    tls_client_ca: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    url: str = ""

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("set both tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        if self.open and (self.token_file is not None or self.tls_client_ca is not None):
            raise ValueError("open: true contradicts token_file and tls_client_ca")


class Privacy(Model, frozen=True):
    """``examples`` keeps redacted excerpts (80 characters) of completions in findings.

    ``completions`` shows the first 240 characters of prompts and completions of the newest batches in the page's table;
    without ``examples`` it has no effect. ``messages`` sends the excerpts of findings to receivers, too.
    """

    examples: bool = True
    completions: bool = False
    messages: bool = False


class WandbServer(Model, frozen=True):
    """How runs named ``wandb://…`` are read; ``base_url`` None: ``WANDB_BASE_URL``, else wandb's own default.

    The API key is never a setting: it comes from ``WANDB_API_KEY`` or ``~/.netrc``.
    """

    base_url: Url | None = None
    requests_per_minute: Annotated[float, Meta(ge=1)] = 60


HeaderName: TypeAlias = Annotated[str, Meta(pattern=HEADER_NAME)]


class BaseSink(Model, frozen=True, tag_field="type", kw_only=True):
    """Settings of every receiver; ``name`` identifies it in metrics and logs and is made from the address when empty.

    The other settings select its alerts: empty lists take all, patterns are those of a shell (``exp7*``). With
    ``digest`` many waiting messages become one (the default of chat services). ``module`` holds the receiver, if not
    that of the type.
    """

    module: ClassVar[str] = ""
    min_severity: Severity = Severity.WARNING
    only_runs: tuple[str, ...] = ()
    only_rules: tuple[str, ...] = ()
    only_labels: dict[LabelName, str] = {}
    digest: bool | None = None
    name: str = ""

    @property
    def type(self) -> str:
        """The kind of receiver, as named in a settings file."""
        return str(self.__struct_config__.tag)


class HttpSink(BaseSink, frozen=True, kw_only=True):
    """A receiver asked over HTTP.

    ``header_files`` are headers (``Authorization``) whose values are read from files for each request; the authorities
    in ``ca_file`` replace the system's.
    """

    header_files: dict[HeaderName, SecretFile] = {}
    ca_file: Path | None = None


class AlertmanagerSink(HttpSink, frozen=True, tag="alertmanager", kw_only=True):
    """Alertmanager's own API, version 2; ``heartbeat`` adds an alert that fires while the watcher is well."""

    url: Url
    heartbeat: bool = False


class SlackSink(BaseSink, frozen=True, tag="slack", kw_only=True):
    """A Slack incoming webhook, whose URL is a secret."""

    webhook_url_file: SecretFile
    ca_file: Path | None = None


class WebhookSink(HttpSink, frozen=True, tag="webhook", kw_only=True):
    """Any HTTP endpoint; ``secret_file`` signs the body (HMAC), ``url_file`` holds an address that is a secret."""

    url: Url | None = None
    url_file: SecretFile | None = None
    secret_file: SecretFile | None = None

    def __post_init__(self) -> None:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("set either url or url_file")


class PushgatewaySink(HttpSink, frozen=True, tag="pushgateway", kw_only=True):
    """A Prometheus Pushgateway; ``instance`` names the group, by default after the state directory."""

    module: ClassVar[str] = "metrics_text"

    url: Url
    instance: str = ""
    every: Annotated[float, Meta(ge=1)] = 15


class TextfileSink(BaseSink, frozen=True, tag="textfile", kw_only=True):
    """A file for node_exporter's textfile collector."""

    module: ClassVar[str] = "metrics_text"

    path: Path
    every: Annotated[float, Meta(ge=1)] = 15


class AppriseSink(BaseSink, frozen=True, tag="apprise", kw_only=True):
    """Every service that apprise supports; its URL holds the credentials."""

    url_file: SecretFile


class RobotSink(BaseSink, frozen=True, kw_only=True):
    """A robot of a chat group, whose address is a secret."""

    module: ClassVar[str] = "group_robots"

    webhook_url_file: SecretFile
    ca_file: Path | None = None


class FeishuSink(RobotSink, frozen=True, tag="feishu", kw_only=True):
    """A custom robot of Feishu or Lark; ``secret_file`` holds its signing secret."""

    secret_file: SecretFile | None = None


class DingTalkSink(RobotSink, frozen=True, tag="dingtalk", kw_only=True):
    """A custom robot of DingTalk; ``secret_file`` holds its signing secret."""

    secret_file: SecretFile | None = None


class WeComSink(RobotSink, frozen=True, tag="wecom", kw_only=True):
    """A group robot of WeCom."""


class PagerDutySink(BaseSink, frozen=True, tag="pagerduty", kw_only=True):
    """PagerDuty's Events API v2; ``routing_key_file`` holds the key of an integration of that kind.

    ``url`` is the address of events, for a region other than the United States or a proxy.
    """

    routing_key_file: SecretFile
    url: Url | None = None
    ca_file: Path | None = None


class HeartbeatSink(BaseSink, frozen=True, tag="heartbeat", kw_only=True):
    """An address requested while the watcher is well; its service alerts people otherwise (healthchecks.io)."""

    url_file: SecretFile
    every: Annotated[float, Meta(ge=5)] = 60


Sink: TypeAlias = (
    AlertmanagerSink
    | SlackSink
    | WebhookSink
    | PushgatewaySink
    | TextfileSink
    | AppriseSink
    | FeishuSink
    | DingTalkSink
    | WeComSink
    | PagerDutySink
    | HeartbeatSink
)
SINKS: tuple[type[BaseSink], ...] = get_args(Sink)
"""Every kind of receiver."""


def _runbook(template: str) -> None:
    if template:
        Url(template)
        if "{rule}" not in template:
            raise ValueError("must be a URL that contains {rule}, e.g. https://wiki.example.org/grpo/{rule}")


def _rate(text: str) -> None:
    if text:
        bytes_per_second(text)


class Settings(Model, frozen=True):
    """All settings; ``state_dir`` None means the default for the watched paths.

    ``io_limit`` is the read rate for weights (``200MB`` per second; empty: unlimited).

    ``language`` is the language of rules' texts: what is wrong and what to do.
    ``runbook_url`` is the address of a rule's runbook, with ``{rule}`` for its name; empty: messages name the command.
    """

    checks = MappingProxyType(
        {
            "listen": split_listen,
            "runbook_url": _runbook,
            "io_limit": _rate,
        }
    )

    runs: tuple[RunEntry, ...] = ()
    listen: str = "127.0.0.1:9853"
    state_dir: Path | None = None
    retention: Retention = Retention()
    rules: tuple[Path, ...] = ()
    notify_backlog: Literal["live", "all", "none"] = "live"
    runbook_url: str = ""
    sinks: tuple[Sink, ...] = ()
    mute: tuple[Mute, ...] = ()
    web: Web = Web()
    allow_roots: tuple[Path, ...] = ()
    privacy: Privacy = Privacy()
    io_limit: str = ""
    wandb: WandbServer = WandbServer()
    language: Literal["en", "zh"] = "en"
