"""The HTML report in a real Chromium: it draws, says nothing on the console, and asks nobody for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_watch.engine.records import Severity
from grpo_watch.report.page import page
from tests.support.process import PATIENCE
from tests.support.reports import PROVENANCE, a_finding, a_hostile_report, a_report
from tests.support.short_path import short_folder

CLICKS = "<script>for (const each of document.querySelectorAll('button')) each.click();</script>"
"""Presses every button once all else has run; the policy forbids it, so the copy that is clicked has none."""

POINTS = """<script>
const over = document.querySelector(".u-over"), box = over.getBoundingClientRect();
const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
for (const kind of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(kind, at));
</script>"""
"""Moves the pointer into the middle of the first chart."""


HIDDEN = """<script>
const wide = [...document.querySelectorAll(".wide, .charts, pre")].filter((box) => box.scrollWidth > box.clientWidth
  && !box.closest("details:not([open])"));
const cell = getComputedStyle(document.querySelector(".stacked td")).display;
document.title = `${innerWidth} px, ${wide.length} scroll, ${cell}`;
</script>"""
"""Says in the title how many boxes hide a part of what they hold at the right."""


class Browser:
    """Opens one file headless, with no network, and keeps what it did."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder

    def open(self, text: str, width: int = 1200) -> tuple[str, list[str], list[str]]:
        """The document after scripts ran, the console's lines, and every address that was asked for."""
        file, log = self._folder / "report.html", self._folder / "net.json"
        file.write_text(text, encoding="utf-8")
        command = [
            self._program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--no-first-run", "--enable-logging=stderr",
            f"--user-data-dir={self._folder / 'profile'}", f"--log-net-log={log}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=3000", f"--window-size={width},2000", "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        with short_folder() as short:
            own = {**os.environ, "TMPDIR": str(short)}  # it makes a socket there
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=own)
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return done.stdout, console, _asked(log)


def _asked(log: Path) -> list[str]:
    """Addresses of requests with a host; the browser's own to its maker are not the page's."""
    shown = json.loads(log.read_text(encoding="utf-8"))
    urls = {event.get("params", {}).get("url", "") for event in shown["events"] if "params" in event}
    return sorted(url for url in urls if re.match(r"(https?|wss?|ftp):", url) and "google" not in url)


@pytest.fixture
def browser(program: Callable[[str], str], tmp_path: Path) -> Browser:
    return Browser(program("chromium"), tmp_path)


@pytest.mark.system("chromium")
def test_it_draws_and_is_quiet(browser: Browser) -> None:
    """Two runs with two charts each."""
    reports = [a_report(a_finding(resolved_step=15)), a_report(run="b", verdict="healthy")]
    dom, console, asked = browser.open(page(reports, [], PROVENANCE))
    assert dom.count('class="u-over"') == 4
    assert (console, asked) == ([], [])


@pytest.mark.slow
@pytest.mark.system("chromium")
def test_every_button_works(browser: Browser) -> None:
    """The log scale where there is a value above 0 (reward, not a KL of 0), and the other theme."""
    text = page([a_report(a_finding())], [], PROVENANCE)
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", f"{CLICKS}</body>")
    dom, console, asked = browser.open(text)
    assert re.findall(r'<button[^>]*aria-pressed="(\w+)"', dom) == ["true"]
    assert re.search(r'<html lang="en" data-theme="(dark|light)">', dom)
    assert dom.count('class="u-over"') == 2
    assert (console, asked) == ([], [])


@pytest.mark.system("chromium")
def test_the_cursor_is_shared(browser: Browser) -> None:
    """Pointing at the middle of the first chart shows that step, of 1 to 20, in the legends of both charts."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", page([a_report()], [], PROVENANCE))
    dom, console, _ = browser.open(text.replace("</body>", f"{POINTS}</body>"))
    steps = re.findall(r">step</div></th><td class=\"u-value\">(\d+)<", dom)
    assert len(steps) == 2
    assert len(set(steps)) == 1
    assert 9 <= int(steps[0]) <= 12
    assert console == []


@pytest.mark.slow
@pytest.mark.system("chromium")
@pytest.mark.parametrize(
    ("width", "shown"), [(500, "500 px, 0 scroll, block"), (1200, "1200 px, 0 scroll, table-cell")]
)
def test_nothing_is_cut_off_on_a_small_screen(browser: Browser, width: int, shown: str) -> None:
    """What follows from the first cause stands in lines below each other, and not in a table too wide to be seen."""
    follows = a_finding(rule="kl-stuck-at-zero", caused_by="parameters-unchanged", severity=Severity.WARNING)
    text = page([a_report(a_finding(rule="parameters-unchanged"), follows)], [], PROVENANCE)
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", f"{HIDDEN}</body>")
    dom, _, _ = browser.open(text, width)
    assert f"<title>{shown}" in dom


@pytest.mark.system("chromium")
def test_hostile_texts_do_nothing(browser: Browser) -> None:
    dom, console, asked = browser.open(page([a_hostile_report()], [], PROVENANCE))
    assert "<title>critical: &lt;/script&gt;" in dom
    assert "<img" not in dom
    assert dom.count('class="u-over"') == 1
    assert (console, asked) == ([], [])


@pytest.mark.slow
@pytest.mark.system("chromium")
def test_the_policy_stops_a_foreign_script(browser: Browser) -> None:
    """Were a text not escaped after all: neither its script nor its picture comes through, and this test sees both."""
    evil = "<img src='http://example.invalid/x'><script>document.title = 'taken'</script>"
    text = page([a_report()], [], PROVENANCE)
    dom, console, asked = browser.open(text.replace("</body>", f"{evil}</body>"))
    assert "<title>taken" not in dom
    assert len(console) == 2
    assert asked == []
    bare = re.sub(r"<meta http-equiv[^>]*>", "", text)
    dom, _, asked = browser.open(bare.replace("</body>", f"{evil}</body>"))
    assert "<title>taken" in dom
    assert asked == ["http://example.invalid/x"]
