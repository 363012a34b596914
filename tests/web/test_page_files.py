"""The page's own files: readable colours in both themes, no way for text to become markup, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_watch.web.answers import Assets, takes_gzip
from grpo_watch.web.server import SECURITY_HEADERS

STATIC = Path(__file__).parents[2] / "grpo_watch" / "web" / "static"
SCRIPTS = sorted((STATIC / "js").glob("*.js"))
TEXT = 4.5
GRAPHICS = 3.0
"""Least contrasts of WCAG 2.2 AA: text (1.4.3), lines and marks (1.4.11)."""


def themes() -> dict[str, dict[str, str]]:
    """The colours of each block of the theme's style sheet."""
    text = (STATIC / "theme.css").read_text()
    blocks = re.findall(r"(:root[^{]*)\{([^{}]*)\}", text)
    found = {name.strip(): dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", body)) for name, body in blocks}
    light = found[":root"]
    return {
        "light": light,
        "dark": found[':root[data-theme="dark"]'],
        "dark by the system": found[':root:not([data-theme="light"])'],
    }


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio as WCAG defines it, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula() -> None:
    """Black on white is 21, #767676 on white the known limit of 4.54."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_lines_stand_out(theme: str) -> None:
    colours = themes()[theme]
    for ground in ("ground", "panel"):
        for name in ("text", "dim", "link", "critical", "warning", "info", "healthy", "not-evaluable"):
            assert contrast(colours[name], colours[ground]) >= TEXT, (name, ground)
    for number in range(7):
        assert contrast(colours[f"s{number}"], colours["ground"]) >= GRAPHICS
    for number in range(8):
        assert contrast(colours["text"], colours[f"same{number}"]) >= TEXT
    assert contrast(colours["ground"], colours["text"]) >= TEXT  # a pressed button
    assert contrast(colours["text"], colours["line"]) >= TEXT  # code


def test_both_ways_to_the_dark_theme_are_one() -> None:
    found = themes()
    assert found["dark"] == found["dark by the system"]
    assert found["dark"].keys() == found["light"].keys()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_turns_text_into_markup_or_code(path: Path) -> None:
    text = path.read_text()
    sinks = r"(inner|outer|insertAdjacent)HTML|document\.write|\beval\(|new Function|createContextual|DOMParser"
    assert not re.search(sinks, text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert text.startswith("//"), "says in its first line what it is"
    assert text.count("\n") <= 250
    assert max(map(len, text.splitlines())) <= 240


def test_the_frame_holds_no_script_and_no_style_of_its_own() -> None:
    text = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*src=)", text) == []
    assert not re.search(r"<style|style=|\son\w+=", text)
    for name in re.findall(r'(?:src|href)="(static/[^"]+)"', text):
        assert (STATIC.parent / name).is_file()


def test_only_files_of_the_page_are_given() -> None:
    assets = Assets()
    for name in ("", "../app.py", "js", "js/../index.html", "/etc/passwd", "vendor/uPlot.iife.min.js.gz"):
        assert assets.answer(name, "") is None
    plain, packed = assets.answer("js/run.js", ""), assets.answer("js/run.js", "br, gzip;q=0.8")
    assert plain is not None
    assert packed is not None
    assert plain.headers["content-type"].startswith("text/javascript")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body)
    assert not takes_gzip("gzipped, br")


def test_the_policy_allows_no_inline_and_no_foreign() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "*" not in policy
