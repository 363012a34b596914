"""Names the settings that are accepted but that this version does not serve, so that none is ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import Loaded
from grpo_watch.errors import ConfigError, Place

UNSERVED: Mapping[str, str] = MappingProxyType(
    {
        "sinks": "this version does not push alerts; let Prometheus scrape /metrics",
        "mute": "this version does not mute findings; silence them in Alertmanager",
        "notify_backlog": "this version pushes no alerts, so there is no backlog to choose from",
    }
)
"""Told loudly at the start: what the user waits for does not come."""

PROTECTION = ("web.token_file", "web.tls_cert", "web.tls_key")
"""Refused at the start: whoever sets these believes that the page is protected."""


def refuse_unserved(loaded: Loaded) -> None:
    """Refuse settings that would protect the page.

    Raises:
        ConfigError: one is set; names where.
    """
    for name in PROTECTION:
        if is_unserved(name, loaded.settings):
            origin = loaded.origins.get(name)
            message = f"{name} is not served by this version: put a reverse proxy in front, or remove it"
            raise ConfigError(message, Place(origin) if origin else None)


def unserved_lines(settings: Settings) -> Iterator[str]:
    """One line for each setting that has no effect."""
    for name, why in UNSERVED.items():
        if is_unserved(name, settings):
            yield f"{name}: {why}"


def is_unserved(name: str, settings: Settings) -> bool:
    """Whether this setting (``web.token_file`` for nested ones) is not served and was set to something."""
    return name in {*UNSERVED, *PROTECTION} and _value(settings, name) != _value(Settings(), name)


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
