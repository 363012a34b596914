"""Every kind of receiver as docs/notifications.md shows it, with a test's addresses and secrets in place of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from grpo_watch.config.fields import SecretFile, Url, converted
from grpo_watch.config.schema import SINKS, BaseSink, Settings
from tests.support.receiving import secret_file

PAGE = Path("docs/notifications.md")
KINDS = frozenset(kind.__struct_config__.tag for kind in SINKS)
SCHEMES = {"apprise": "json"}
"""Of addresses that are not http: apprise's of a service that posts JSON."""


def code_blocks(language: str) -> list[str]:
    """The blocks of the page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shown() -> list[BaseSink]:
    """Each receiver of the page, and once more for each other value of a key that has several."""
    sinks = [s for block in code_blocks("yaml") for s in converted(Settings, yaml.safe_load(block)).sinks]
    return [each for sink in sinks for each in (sink, *_others(sink))]


def fullest() -> list[BaseSink]:
    """Of each kind the one with the most keys."""
    kinds = {sink.type: sink for sink in sorted(shown(), key=lambda sink: len(_given(sink)))}
    return list(kinds.values())


def _others(sink: BaseSink) -> Iterator[BaseSink]:
    for field in msgspec.structs.fields(sink):
        for value in get_args(field.type):
            if isinstance(value, str) and value != getattr(sink, field.name):
                yield msgspec.structs.replace(sink, **{field.name: value})


def _given(sink: BaseSink) -> set[str]:
    """The keys that are not as by default."""
    fields = msgspec.structs.fields(sink)
    return {field.name for field in fields if field.required or getattr(sink, field.name) not in (field.default, {})}


def pointed(sink: BaseSink, url: str, folder: Path, word: Callable[[str], str]) -> dict[str, Any]:
    """Its settings with this address; passwords and files hold the ``word`` of their key."""
    scheme, host = SCHEMES.get(sink.type, "http"), url.removeprefix("http://")

    def kept(key: str) -> str:
        secret = f"{scheme}://me:{word(key)}@{host}/hook"
        return str(secret_file(folder / f"{len(list(folder.iterdir()))}-{key}", secret))

    def changed(key: str, value: Any) -> Any:
        if isinstance(value, Url):
            return f"http://me:{word(key)}@{host}"
        if isinstance(value, SecretFile):
            return kept(key)
        if isinstance(value, dict):
            return {name: kept(name) if isinstance(inner, SecretFile) else inner for name, inner in value.items()}
        return str(folder / "grpo.prom") if isinstance(value, Path) else getattr(value, "value", value)

    keys = _given(sink) - {"ca_file"}
    given = {"type": sink.type, **{key: changed(key, getattr(sink, key)) for key in keys}}
    if "url" in sink.__struct_fields__ and "url_file" not in keys:
        given["url"] = changed("url", Url(url))
    return given | {"min_severity": "info"}
