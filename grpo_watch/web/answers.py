"""Responses of the page and the API: rendered once per change, and not sent again to a client that has them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.metrics.daemon_snapshot import RunOverview
from grpo_watch.safe_text import plain

FOLDER = Path(__file__).with_name("static")
INDEX = "index.html"
JSON = "application/json"
TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SMALL = 1_000
"""Bytes below which compression is not worth it."""
MOST_KEPT, MOST_BYTES = 64, 4 * 1024 * 1024
"""Most answers kept, and most bytes of them: those of a long run take 0.1 MB. The oldest goes first."""
READ_SECONDS = 15.0
"""Steps in which "last read" of a source changes on a page, so that answers change no more often."""
PACKED: Mapping[str, str] = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}

Basis = Sequence[object]
"""The data of an answer; snapshots are compared by identity: the daemon keeps the same object until a change."""


@dataclass(slots=True)
class Kept:
    """An answer: its body, its ETag, and its compressed form after the first client that accepts it."""

    basis: Basis
    content: bytes
    tag: str
    packed: bytes = b""

    def response(self, request: Request) -> Response:
        """304 for a client that has it, else the body; compressed if the client accepts it."""
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"ETag": self.tag})
        headers = {"ETag": self.tag}
        if len(self.content) < SMALL or not takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(self.content, headers=headers, media_type=JSON)
        self.packed = self.packed or gzip.compress(self.content, 5, mtime=0)
        return Response(self.packed, headers={**headers, **PACKED}, media_type=JSON)


class Answers:
    """JSON answers by path and query, kept while their data stay the same."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def kept(self, request: Request, basis: Basis) -> Response | None:
        """The kept answer if it was made from the same data, else None."""
        found = self._kept.get(_place(request))
        return found.response(request) if found is not None and same(found.basis, basis) else None

    def made(self, request: Request, basis: Basis, document: Any) -> Response:
        """Render and keep a document made from these data."""
        content = strict(document).encode()
        made = Kept(basis, content, f'W/"{blake2b(content, digest_size=8).hexdigest()}"')
        self._kept.pop(_place(request), None)
        self._kept[_place(request)] = made
        while len(self._kept) > MOST_KEPT or (len(self._kept) > 1 and self._size() > MOST_BYTES):
            del self._kept[next(iter(self._kept))]
        return made.response(request)

    def _size(self) -> int:
        return sum(len(each.content) + len(each.packed) for each in self._kept.values())


def basis_of(*runs: RunOverview) -> list[object]:
    """The data of answers about these runs. The time their files were last read counts in steps of ``READ_SECONDS``."""
    found: list[object] = []
    for run in runs:
        channels = [
            (each.source, each.up, each.problem, each.read_at and each.read_at // READ_SECONDS) for each in run.channels
        ]
        found += [run.snapshot, (run.slug, run.active, run.ended, run.lost, run.labels, channels)]
    return found


def same(one: Basis, other: Basis) -> bool:
    """Whether two answers have the same data."""
    if one is other:
        return True
    pairs = zip(one, other, strict=False)
    same = all(a is b or (not isinstance(a, RunSnapshot) and a == b) for a, b in pairs)
    return same and len(one) == len(other)


def problem(status: int, text: str) -> Response:
    """An error response of the API."""
    return Response(strict({"error": text}).encode(), status, media_type=JSON)


def strict(value: Any) -> str:
    """Strict JSON; NaN and infinities become strings that JavaScript's ``Number()`` understands.

    Tries plain encoding first: most values are strict already, and checking thousands of numbers takes a while.
    """
    with suppress(ValueError):  # NaN or an infinity
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        if "\\ud" not in text:  # perhaps half of a surrogate pair
            return text
    return json.dumps(plain(value), separators=(",", ":"))


class Assets:
    """The page's own files: all below ``web/static`` with a known type, read once, by their path there."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in FOLDER.rglob("*") if path.suffix in TYPES
        }
        self._packed: dict[str, bytes] = {}

    def answer(self, name: str, accept_encoding: str) -> Response | None:
        """The file, compressed if the client accepts that; None if there is no such file."""
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


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this header takes gzip."""
    return any(part.partition(";")[0].strip() == "gzip" for part in accept_encoding.lower().split(","))


def _place(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}"
