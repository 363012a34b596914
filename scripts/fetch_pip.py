"""Gets pip's own wheel into a folder and prints its path: by the pip of this Python, else from the package index.

For a Python without ensurepip (Debian and Ubuntu without python3-venv). Standard library only; the index is
``PIP_INDEX_URL`` where that is set.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

DEFAULT_INDEX = "https://pypi.org/simple"
LINK = re.compile(r'<a\b[^>]*\bhref="(?P<href>[^"]+)"(?P<rest>[^>]*)>')
WHEEL = re.compile(r"/(?P<file>pip-(?P<version>[0-9]+(?:\.[0-9]+)*)-py3-none-any\.whl)#sha256=(?P<sha>[0-9a-f]{64})$")
OLDEST_PYTHON = re.compile(r">=3\.([0-9]+)")


def by_pip(folder: Path) -> bool:
    """Let an installed pip download it, so that the user's pip configuration (mirrors, proxies) counts."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    return subprocess.run([*command, "--dest", str(folder), "pip"], stdout=sys.stderr, check=False).returncode == 0


def by_index(folder: Path) -> None:
    """Download the newest final release that runs on this Python, checked against the index's hash."""
    page = f"{os.environ.get('PIP_INDEX_URL', DEFAULT_INDEX).rstrip('/')}/pip/"
    with urlopen(page, timeout=30) as answer:
        found = newest(answer.read().decode(), answer.url)
    if found is None:
        raise SystemExit(f"{page}: no wheel of pip for Python {sys.version_info.major}.{sys.version_info.minor}")
    url, sha256 = found
    with urlopen(url, timeout=60) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SystemExit(f"{url}: content differs from the index's sha256")
    (folder / url.rsplit("/", 1)[1]).write_bytes(content)


def newest(html: str, base: str) -> tuple[str, str] | None:
    """The address and sha256 of the newest usable wheel on a PEP 503 page."""
    usable: dict[tuple[int, ...], tuple[str, str]] = {}
    for link in LINK.finditer(html):
        url = urljoin(base, unescape(link["href"]))
        wheel = WHEEL.search(url)
        oldest = OLDEST_PYTHON.search(unescape(link["rest"]))
        if wheel and (oldest is None or int(oldest[1]) <= sys.version_info.minor):
            version = tuple(int(part) for part in wheel["version"].split("."))
            usable[version] = (url.partition("#")[0], wheel["sha"])
    return usable[max(usable)] if usable else None


def main() -> None:
    """Fill the folder named on the command line and print the wheel's path."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if not by_pip(folder):
        by_index(folder)
    print(next(folder.glob("pip-*.whl")))


if __name__ == "__main__":
    main()
