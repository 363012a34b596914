"""The command that installs a missing optional package into this installation."""

from __future__ import annotations

import json
import shlex
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

NO_PYARROW = "Parquet is not read without pyarrow: "
"""Followed by the command that installs it, in the reason of rules that are blind for it."""
TOOLS = (
    ("/uv/tools/", "uv tool install --force {}"),
    ("/uv/archive-", "uvx --from {} grpo-watch …"),
    ("/pipx/venvs/", "pipx install --force {}"),
    ("/pipx/", "pipx run --spec {} grpo-watch …"),
)
"""Parts of the environment's path that identify a tool's own environments, and its command."""


@cache
def install(extra: str) -> str:
    """The command that adds an extra to this installation: for uv's tools, uvx, pipx, uv or pip."""
    root = Path(__file__).resolve().parents[1]
    checkout, prefix = (root / "pyproject.toml").is_file(), Path(sys.prefix).as_posix()
    installer, came_from = _came_from(extra)
    wanted = shlex.quote(f"{root}[{extra}]" if checkout else came_from)
    command = next((command for part, command in TOOLS if part in prefix), "")
    if command:
        return command.format(wanted)
    return f"{'uv ' if installer == 'uv' else ''}pip install {'-e ' if checkout else ''}{wanted}"


def _came_from(extra: str) -> tuple[str, str]:
    """The installer and its source (``direct_url.json``, PEP 610; without it the name on an index)."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  slow to import, rarely needed
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415  the same

    named = f"grpo-watch[{extra}]"
    try:
        installed = distribution("grpo-watch")
    except PackageNotFoundError:
        return "", named
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    url, repository = origin.get("url", ""), origin.get("vcs_info")
    if repository:
        named += f" @ {repository['vcs']}+{url}@{repository['commit_id']}"
    elif url.startswith("file:"):
        named = f"{unquote(urlsplit(url).path)}[{extra}]"
    elif url:
        named += f" @ {url}"
    return (installed.read_text("INSTALLER") or "").strip(), named


def without_parquet() -> str:
    """The reason why Parquet can't be read here, and the remedy, in one line; empty if it can."""
    return "" if find_spec("pyarrow") is not None else NO_PYARROW + install("parquet")
