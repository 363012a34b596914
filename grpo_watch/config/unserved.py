"""Names the settings that are accepted but that this version does not serve, so that none is ignored in silence."""

from __future__ import annotations

from typing import Any

from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import Loaded
from grpo_watch.errors import ConfigError, Place

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


def is_unserved(name: str, settings: Settings) -> bool:
    """Whether this setting (``web.token_file`` for nested ones) is not served and was set to something."""
    return name in PROTECTION and _value(settings, name) != _value(Settings(), name)


def _value(settings: Settings, name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value
