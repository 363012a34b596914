"""The shape of what every receiver in ``grpo-watch.yaml`` may set for the messages it gets."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from grpo_watch.config.fields import LabelName, Model
from grpo_watch.engine.records import Severity


class Routing(Model):
    """Which alerts a receiver gets. Empty lists take all; patterns as in a shell (``exp7*``).

    With ``digest`` many that wait become one (chat services do so by default).
    """

    chat: ClassVar[bool] = False
    """Whether people read it as a chat, where many messages at once are one by default."""
    min_severity: Severity = Severity.WARNING
    only_runs: tuple[str, ...] = ()
    only_rules: tuple[str, ...] = ()
    only_labels: Annotated[dict[LabelName, str], Field(default_factory=dict)]
    digest: bool | None = None
