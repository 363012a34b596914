"""The page's own files: scripts, style sheets, the frame; read once, served under names that are known beforehand."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from starlette.responses import Response

FOLDER = Path(__file__).with_name("static")
INDEX = "index.html"
TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SMALL = 1_000
"""Bytes below which compression is not worth it."""


class Assets:
    """Every file below ``web/static`` of a known type, by its path there."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in FOLDER.rglob("*") if path.suffix in TYPES
        }
        self._packed: dict[str, bytes] = {}

    def answer(self, name: str, accept_encoding: str) -> Response | None:
        """The file, compressed where the client takes that; None where there is no such file."""
        content = self._files.get(name)
        if content is None:
            return None
        kind = TYPES[name[name.rindex(".") :]]
        if not takes_gzip(accept_encoding) or len(content) < SMALL:
            return Response(content, media_type=kind)
        packed = self._packed.get(name)
        if packed is None:
            packed = self._packed[name] = gzip.compress(content, 9, mtime=0)
        return Response(packed, media_type=kind, headers=PACKED)


PACKED: Mapping[str, str] = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this header takes gzip."""
    return any(part.partition(";")[0].strip() == "gzip" for part in accept_encoding.lower().split(","))
