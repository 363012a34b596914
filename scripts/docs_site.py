"""Builds the documentation as a searchable site in build/site, with mkdocs-material: `make docs-site`."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
START = "docs/index.md"
PAGES = (
    "docs/**/*.md",
    "grpo_watch/detectors/*/*.md",
    "grpo_watch/preflight/checks/*.md",
    "benchmarks/**/*.md",
    "deploy/**/*.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
NAV: dict[str, tuple[str, ...]] = {
    "I train": ("start", "frameworks", "preflight", "advisories", "faq", "callback", "report", "frameworks/*"),
    "I script": ("wait", "agents", "python"),
    "I operate": (
        "deployment",
        "notifications",
        "delivery",
        "prometheus",
        "metrics",
        "status-page",
        "operations",
        "scale",
    ),
    "I write rules": ("rules", "writing-rules", "robustness", "../grpo_watch/detectors/*/*"),
    "I extend": (
        "architecture",
        "adding-a-framework",
        "glossary",
        "../CONTRIBUTING",
        "../benchmarks/*",
        "../benchmarks/wild/*",
        "decisions/*",
    ),
    "中文": ("zh/start", "zh/ms-swift", "zh/faq", "zh/notifications"),
    "What is read": ("channels", "rollouts", "checkpoints", "wandb", "comparison"),
}
"""The tabs of the site with their pages, relative to docs/ and without `.md`."""


def pages() -> Iterator[Path]:
    """Every page of the site."""
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def assemble(to: Path) -> None:
    """Copy pages, and the files that they link, at their own places; the start page goes to the top."""
    for page in pages():
        own = page.relative_to(ROOT).as_posix()
        text = page.read_text("utf-8")
        for target in {found[2] for found in LINK.finditer(text)}:
            linked = (page.parent / target).resolve()
            if "://" not in target and linked.is_file() and linked.suffix != ".md":
                _copy(linked, to)
        place = to / (Path(START).name if own == START else own)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(LINK.sub(lambda found, own=own: _link(found, own), text), "utf-8")
    for picture in (ROOT / "docs" / "images").iterdir():
        _copy(picture, to)


def _copy(file: Path, to: Path) -> None:
    place = to / file.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _link(found: re.Match[str], own: str) -> str:
    """A link as it is in the site; of one to a folder, which has no page there, the text."""
    text, target, anchor = found[1], found[2], found[3] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), target))
    if (ROOT / path).is_dir():
        return text
    here = "" if own == START else posixpath.dirname(own)
    return f"[{text}]({posixpath.relpath('index.md' if path == START else path, here or '.')}{anchor})"


def nav() -> list[dict[str, Any]]:
    """The tabs, with patterns replaced by the pages that fit."""
    tabs: list[dict[str, Any]] = [{"Start": "index.md"}]
    for title, patterns in NAV.items():
        found = [file for pattern in patterns for file in sorted((ROOT / "docs").glob(f"{pattern}.md"))]
        tabs.append({title: [file.resolve().relative_to(ROOT).as_posix() for file in found]})
    return [*tabs, {"Security": "SECURITY.md"}]


def configuration(source: Path, site: Path) -> dict[str, Any]:
    """Settings of mkdocs; nothing is loaded from another server."""
    schemes = (("default", "light"), ("slate", "dark"))
    return {
        "site_name": "grpo-watch",
        "docs_dir": str(source),
        "site_dir": str(site),
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.tabs", "search.suggest", "search.highlight", "content.code.copy"],
            "palette": [{"media": f"(prefers-color-scheme: {name})", "scheme": scheme} for scheme, name in schemes],
        },
        "plugins": ["search"],
        "markdown_extensions": ["tables", "pymdownx.superfences", {"toc": {"permalink": True}}],
        "nav": nav(),
    }


def main() -> int:
    """Assemble the source and build the site; the exit code of mkdocs."""
    build = ROOT / "build"
    source, site, file = build / "site-source", build / "site", build / "mkdocs.yml"
    shutil.rmtree(source, ignore_errors=True)
    assemble(source)
    file.write_text(yaml.safe_dump(configuration(source, site), sort_keys=False), "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "-f", str(file)]
    done = subprocess.run(command, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode == 0:
        print(f"open {site / 'index.html'}, or serve that folder")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
