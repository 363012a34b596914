"""The shape of ``sinks:`` in ``grpo-watch.yaml``: one frozen model per kind of receiver."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from grpo_watch.config.fields import Address, FilePath, LabelName, Model, Secret
from grpo_watch.engine.records import Severity

HeaderName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]


class BaseSink(Model):
    """What every receiver has; ``name`` is what metrics and logs call it, made from the address when empty.

    The rest says which alerts it gets: empty lists take all, patterns are those of a shell (``exp7*``). With ``digest``
    many that wait become one (chat services do so by default). ``module`` holds the receiver, if not that of the type.
    """

    module: ClassVar[str] = ""
    min_severity: Severity = Severity.WARNING
    only_runs: tuple[str, ...] = ()
    only_rules: tuple[str, ...] = ()
    only_labels: Annotated[dict[LabelName, str], Field(default_factory=dict)]
    digest: bool | None = None
    name: str = ""


class HttpSink(BaseSink):
    """A receiver asked over HTTP.

    ``header_files`` are headers (``Authorization``) whose values are read from files for each request; ``ca_file``
    is trusted instead of the system's authorities.
    """

    header_files: dict[HeaderName, Secret] = Field(default_factory=dict)
    ca_file: FilePath | None = None


class AlertmanagerSink(HttpSink):
    """Alertmanager's own API, version 2; ``heartbeat`` adds an alert that fires while the watcher is well."""

    type: Literal["alertmanager"]
    url: Address
    heartbeat: bool = False


class SlackSink(BaseSink):
    """A Slack incoming webhook, whose URL is a secret."""

    type: Literal["slack"]
    webhook_url_file: Secret
    ca_file: FilePath | None = None


class WebhookSink(HttpSink):
    """Any HTTP endpoint; ``secret_file`` signs the body (HMAC); ``format: alertmanager`` sends Alertmanager's payload.

    An address that is itself a secret is in ``url_file``.
    """

    type: Literal["webhook"]
    url: Address | None = None
    url_file: Secret | None = None
    secret_file: Secret | None = None
    format: Literal["grpo-watch", "alertmanager"] = "grpo-watch"

    @model_validator(mode="after")
    def _one_address(self) -> WebhookSink:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("set either url or url_file")
        return self


class PushgatewaySink(HttpSink):
    """A Prometheus Pushgateway; ``instance`` names the group, by default after the state directory."""

    module: ClassVar[str] = "metrics_text"

    type: Literal["pushgateway"]
    url: Address
    instance: str = ""
    every: Annotated[float, Field(ge=1)] = 15


class TextfileSink(BaseSink):
    """A file for node_exporter's textfile collector."""

    module: ClassVar[str] = "metrics_text"

    type: Literal["textfile"]
    path: FilePath
    every: Annotated[float, Field(ge=1)] = 15


class AppriseSink(BaseSink):
    """Every service that apprise supports; its URL holds the credentials."""

    type: Literal["apprise"]
    url_file: Secret


class RobotSink(BaseSink):
    """A robot of a chat group, whose address is a secret."""

    module: ClassVar[str] = "group_robots"

    type: str
    webhook_url_file: Secret
    ca_file: FilePath | None = None


class FeishuSink(RobotSink):
    """A custom robot of Feishu or Lark; ``secret_file`` holds what it verifies signatures with."""

    type: Literal["feishu"]
    secret_file: Secret | None = None


class DingTalkSink(RobotSink):
    """A custom robot of DingTalk; ``secret_file`` holds the secret of its signed requests."""

    type: Literal["dingtalk"]
    secret_file: Secret | None = None


class WeComSink(RobotSink):
    """A group robot of WeCom."""

    type: Literal["wecom"]


class PagerDutySink(BaseSink):
    """PagerDuty's Events API v2; ``routing_key_file`` holds the key of an integration of that kind.

    ``url`` is where events go, for another region than the United States or a proxy.
    """

    type: Literal["pagerduty"]
    routing_key_file: Secret
    url: Address | None = None
    ca_file: FilePath | None = None


class HeartbeatSink(BaseSink):
    """An address that is asked while the watcher is well, and that alerts people when it is not (healthchecks)."""

    type: Literal["heartbeat"]
    url_file: Secret
    every: Annotated[float, Field(ge=5)] = 60


Sink: TypeAlias = Annotated[
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
    | HeartbeatSink,
    Field(discriminator="type"),
]
SINKS: tuple[type[BaseSink], ...] = get_args(get_args(Sink)[0])
"""Every kind of receiver."""
