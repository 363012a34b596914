"""The command that adds an extra is one for this installation: its installer, and where it came from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_watch import extras

WHEEL = {"url": "file:///srv/my%20wheels/grpo_watch-0.1.0-py3-none-any.whl", "archive_info": {}}
FOLDER = {"url": "file:///srv/grpo-watch", "dir_info": {}}
REPOSITORY = {"url": "https://git.example/grpo-watch", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}
ARCHIVE = {"url": "https://files.example/grpo_watch-0.1.0.tar.gz", "archive_info": {}}
QUOTED = "'/srv/my wheels/grpo_watch-0.1.0-py3-none-any.whl[mcp]'"


def installed(origin: Mapping[str, object] | None, installer: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    """Play an installation below ``place``, as an installer describes it."""
    described = place / "grpo_watch-0.1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: grpo-watch\nVersion: 0.1.0\n")
    (described / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (described / "direct_url.json").write_text(json.dumps(origin))
    patch.syspath_prepend(place)
    patch.setattr(extras, "__file__", str(place / "grpo_watch" / "extras.py"))


@pytest.mark.parametrize(
    ("origin", "installer", "prefix", "command"),
    [
        (None, "pip", "/srv/venv", "pip install 'grpo-watch[mcp]'"),
        (None, "uv", "/srv/venv", "uv pip install 'grpo-watch[mcp]'"),
        (FOLDER, "pip", "/srv/venv", "pip install '/srv/grpo-watch[mcp]'"),
        (WHEEL, "pip", "/srv/venv", f"pip install {QUOTED}"),
        (WHEEL, "uv", "/root/.cache/uv/archive-v0/hfqE4Io", f"uvx --from {QUOTED} grpo-watch …"),
        (WHEEL, "uv", "/root/.local/share/uv/tools/grpo-watch", f"uv tool install --force {QUOTED}"),
        (WHEEL, "pip", "/root/.local/share/pipx/venvs/grpo-watch", f"pipx install --force {QUOTED}"),
        (WHEEL, "uv", "/root/.cache/pipx/af8b367c3a8c8e1", f"pipx run --spec {QUOTED} grpo-watch …"),
        (None, "uv", "/root/.cache/uv/archive-v0/hfqE4Io", "uvx --from 'grpo-watch[mcp]' grpo-watch …"),
        (REPOSITORY, "pip", "/srv/venv", "pip install 'grpo-watch[mcp] @ git+https://git.example/grpo-watch@0a1b'"),
        (ARCHIVE, "pip", "/srv/venv", "pip install 'grpo-watch[mcp] @ https://files.example/grpo_watch-0.1.0.tar.gz'"),
    ],
)
def test_the_command_is_for_this_installation(
    origin: Mapping[str, object] | None,
    installer: str,
    prefix: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(origin, installer, tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "prefix", prefix)
    assert extras.install.__wrapped__("mcp") == command


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/srv/venv", "pip install -e '{}[mcp]'"),
        ("/root/.local/share/uv/tools/grpo-watch", "uv tool install --force '{}[mcp]'"),
    ],
)
def test_a_checkout_is_installed_as_it_is(
    prefix: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}, "pip", tmp_path, monkeypatch)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(sys, "prefix", prefix)
    assert extras.install.__wrapped__("mcp") == command.format(tmp_path)


def test_parquet_is_named_like_every_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(FOLDER, "pip", tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "prefix", "/srv/venv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(extras, "install", extras.install.__wrapped__)
    assert extras.without_parquet() == ("Parquet is not read without pyarrow: pip install '/srv/grpo-watch[parquet]'")
