"""A real Chromium, driven by Playwright; what it did wrong is kept."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.short_path import short_folder

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
PATIENCE = 120_000
"""Milliseconds after which a test gives up waiting for the browser."""
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}


@dataclass
class Visit:
    """One page: where it is, what it complained of, what it asked for, and how many bytes came."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    received: int = 0

    def open(self, place: str = "#/") -> None:
        """Go to an address inside the status page."""
        self.page.goto(f"{self.base}/{place}")

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until the text is there."""
        self.page.get_by_text(text).first.wait_for(timeout=PATIENCE)

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until the expression is true in the page; Playwright's own waiting needs ``eval``, which it forbids."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(expression, argument):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            self.page.wait_for_timeout(20)

    def elsewhere(self) -> list[str]:
        """Addresses asked for that are not the daemon's."""
        return [url for url in self.asked if not url.startswith(f"{self.base}/")]


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """The browser; nothing is downloaded, and no name but this machine's is found."""
    with short_folder() as folder, sync_playwright() as playwright:
        own: dict[str, str | float | bool] = {**os.environ, "TMPDIR": str(folder)}  # it makes a socket there
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS), timeout=PATIENCE, env=own)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Browser, base: str, **options: Any) -> Iterator[Visit]:
    """A fresh page of a fresh profile."""
    context = browser.new_context(**{"viewport": DESKTOP, "color_scheme": "light", **options})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    reported = Visit(page, base)
    page.on(
        "console", lambda line: reported.complaints.append(line.text) if line.type in {"error", "warning"} else None
    )
    page.on("pageerror", lambda error: reported.complaints.append(str(error)))
    page.on("request", lambda request: reported.asked.append(request.url))
    page.on("dialog", lambda dialog: (reported.complaints.append("a dialog"), dialog.dismiss()))
    network = context.new_cdp_session(page)
    network.send("Network.enable")

    def arrived(event: dict[str, Any]) -> None:
        reported.received += int(event["encodedDataLength"])

    network.on("Network.loadingFinished", arrived)
    try:
        yield reported
    finally:
        context.close()
