"""The shape of ``sinks:`` in ``grpo-watch.yaml``: one frozen model per kind of receiver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias, get_args

from msgspec import Meta

from grpo_watch.config.document import HEADER_NAME
from grpo_watch.config.fields import LabelName, Model, SecretFile, Url
from grpo_watch.engine.records import Severity

HeaderName: TypeAlias = Annotated[str, Meta(pattern=HEADER_NAME)]


class BaseSink(Model, frozen=True, tag_field="type", kw_only=True):
    """What every receiver has; ``name`` is what metrics and logs call it, made from the address when empty.

    The rest says which alerts it gets: empty lists take all, patterns are those of a shell (``exp7*``). With ``digest``
    many that wait become one (chat services do so by default). ``module`` holds the receiver, if not that of the type.
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
        """The kind of receiver, as a settings file names it."""
        return str(self.__struct_config__.tag)


class HttpSink(BaseSink, frozen=True, kw_only=True):
    """A receiver asked over HTTP.

    ``header_files`` are headers (``Authorization``) whose values are read from files for each request; ``ca_file``
    is trusted instead of the system's authorities.
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
    """Any HTTP endpoint; ``secret_file`` signs the body (HMAC); an address that is a secret is in ``url_file``."""

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
    """A custom robot of Feishu or Lark; ``secret_file`` holds what it verifies signatures with."""

    secret_file: SecretFile | None = None


class DingTalkSink(RobotSink, frozen=True, tag="dingtalk", kw_only=True):
    """A custom robot of DingTalk; ``secret_file`` holds the secret of its signed requests."""

    secret_file: SecretFile | None = None


class WeComSink(RobotSink, frozen=True, tag="wecom", kw_only=True):
    """A group robot of WeCom."""


class PagerDutySink(BaseSink, frozen=True, tag="pagerduty", kw_only=True):
    """PagerDuty's Events API v2; ``routing_key_file`` holds the key of an integration of that kind.

    ``url`` is where events go, for another region than the United States or a proxy.
    """

    routing_key_file: SecretFile
    url: Url | None = None
    ca_file: Path | None = None


class HeartbeatSink(BaseSink, frozen=True, tag="heartbeat", kw_only=True):
    """An address that is asked while the watcher is well, and that alerts people when it is not (healthchecks)."""

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
