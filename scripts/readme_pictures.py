"""Writes docs/images/run-light.png and run-dark.png for the README: the page of the demo's frozen run, in Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, sync_playwright

from grpo_watch.cli.run import running
from grpo_watch.config.schema import Settings, Web
from grpo_watch.demo.replayer import replay_run

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
NAME = "frozen-policy"
SIZE = {"width": 1100, "height": 760}
MOST_BYTES = 150_000
"""What a picture may weigh in the repository."""


def picture(browser: Browser, address: str, scheme: str) -> None:
    """The page of the run as it opens."""
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, bypass_csp=True)
    page.goto(f"{address}/#/run/{NAME}")
    page.locator(".u-over").first.wait_for()
    page.get_by_text("What to do").first.wait_for()
    file = IMAGES / f"run-{scheme}.png"
    page.screenshot(path=file, animations="disabled")
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file}: {size} bytes, more than {MOST_BYTES}")


def main() -> None:
    """Replay the bundled run at once, let the daemon judge it, and take both pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tools:
        run = Path(folder) / NAME
        replay_run(run, lambda _: False, 1e9)
        settings = Settings(listen="127.0.0.1:0", state_dir=Path(folder) / "state", web=Web(open=True))
        browser = tools.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        with running([str(run)], lambda: settings) as watch:
            for scheme in ("light", "dark"):
                picture(browser, f"http://{watch.address}", scheme)


if __name__ == "__main__":
    main()
