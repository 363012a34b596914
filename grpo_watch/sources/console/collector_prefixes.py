"""Strips prefixes of log collectors (Ray, torchrun, journald, Docker …) from lines and joins the lines they cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from typing import Any

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.frameworks.guessing import guess

LONGEST = 1 << 20
"""Bytes kept of a line that a collector cut into pieces; the rest is dropped."""
STAMP = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
SUSPECT = re.compile(rb"[\d(\[{\x1b<]|\s{0,20}\"|[A-Z][a-z]{2} [ \d]\d \d\d:")
"""How every wrapped line begins; most lines of a plain log fail this single test."""
CONTAINER = re.compile(STAMP + rb" (?:stdout|stderr) ([FP]) ")
"""``2026-01-02T03:04:05.123456789Z stdout F text`` (Kubernetes' runtime interface; P: the line continues)."""
DOCKER = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")
"""``docker logs --timestamps``: always nine digits and UTC."""
JOURNAL = re.compile(
    rb"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?|"
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[+-]\d\d:?\d\d)"
    rb" [\w.-]{1,64} [^\s:\[\]]{1,80}(?:\[\d{1,10}\])?: "
)
"""``Nov 21 19:06:58 host unit[123]: `` and the same with ``-o short-iso``."""
JSON_FILE = b'{"log":'
"""Docker's json-file driver: one object per line, the text in ``log``; without a line end in it the line continues."""
JOURNAL_MARK = b'"__REALTIME_TIMESTAMP"'
"""``journalctl -o json``: one object per line, the text in ``MESSAGE`` (numbers if it holds control characters, null
from 4,096 bytes on without ``--all``); ``_LINE_BREAK`` is ``line-max`` if the line continues."""
TORCHRUN = re.compile(rb"(?:\[(?:default|rank)(\d{1,6})\]: ?){1,2}")
"""``[default0]:text`` (``torchrun --tee``) and ``[rank0]: text`` (PyTorch's own tracebacks), or both."""
COLOUR = re.compile(rb"\x1b(?:\[[\d;?]{0,20}[mhlKJ]|\][^\x07\x1b]{0,200}\x07|[=>])")
"""Colours and other escape sequences in terminal recordings: cleared lines, modes, window titles."""
ENTITY = re.compile(rb"&(?:#39|#x27|quot|amp|lt|gt);")
"""HTML entities for quotes and brackets in a page that shows a log."""
PAGE = re.compile(rb"\s{0,40}<(?:!doctype|html|pre)\b", re.IGNORECASE)
HEAD = 2_048
"""Bytes at the beginning of a log in which an HTML page is recognised; later markup is a model's text."""
MARKUP = re.compile(rb"</?[a-z][a-z0-9]{0,10}(?: [^<>]{0,400})?>")
RAY = re.compile(
    rb"(?:\[\d{1,3}(?:;\d{1,3}){0,4}m){0,2}\([^()\r\n]{0,120}?pid=\d{1,10}(?:, ip=[^()\s]{1,64})?\)(?:\[0m)? ?"
)
"""``(TaskRunner pid=4617, ip=10.1.51.94) ``; copies into issues lose the escape character and leave ``[36m``."""
JOB = re.compile(rb"(?:\[\d{1,3}m){0,2}\(([\w.-]{1,100}), pid=\d")
"""``(sweep-lr1e-5, pid=2808) ``: the job that printed the line, in SkyPilot's logs of several jobs."""
REPEATED = re.compile(
    rb"(?:\[\d{1,3}m)? ?\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs [^\r\n]{0,400})?"
    rb"(?:\[0m)?\s{0,4}$"
)
"""Ray's suffix of a line that several workers printed."""
REPEATED_MARK = b"x across cluster]"
INSIDE = (REPEATED_MARK, b"\x1b", b"\x08", b"&")
"""Marks of lines that need cleaning although they begin without a prefix."""
TEXTS = ("message", "msg", "text", "log", "line", "event", "body", "textPayload", "MESSAGE", "content")
"""Keys that structured logging uses for the text of a line."""
WRAPS_TEXT = re.compile(rb'(?:"(?:' + "|".join(TEXTS).encode() + rb')": ?|\["\d{19}", ?)"(?:[^"\\]|\\.){0,400}\d')
ENTRY = re.compile(rb'\s{0,20}("(?:' + "|".join(TEXTS).encode() + rb')": ?"(?:[^"\\]|\\.){1,4000}"),?\s{0,4}$')
"""The line that holds an entry's text, in a list of entries printed over several lines."""
NANOSECONDS = re.compile(r"\d{19}")
DEEPEST = 6
"""Levels of lists and mappings of a response that are searched for entries."""
SYSLOG = re.compile(rb"<\d{1,3}>1 \S{1,40} \S{1,255} \S{1,48} \S{1,128} \S{1,32} (?:-|\[[^\]\r\n]{0,400}\]) ")
"""``<14>1 2026-03-02T10:00:00Z host train 4432 - - `` (RFC 5424)."""
ENDS = re.compile(rb"[\r\n]+")

_decode = msgspec.json.Decoder().decode


class Envelope:
    """Unwraps pieces of a log. ``open``: a cut line waits for its rest.

    ``left_out`` counts the lines whose text the collector dropped; ``rank`` is the newest piece's rank by torchrun, if
    any, and ``job`` its job. ``page``: the log is an HTML page, whose markup is removed.
    """

    def __init__(self, *, page: bool = False) -> None:
        self._cut, self.rank, self.job = b"", "", ""
        self.page, self._head = page, 0
        self.left_out = 0

    @property
    def open(self) -> bool:
        """Whether the beginning of a cut line is held."""
        return bool(self._cut)

    def unwrap(self, data: bytes) -> Sequence[bytes]:
        """Return the completed pieces: this one if plain, none for a cut line, several if it holds line ends."""
        self.rank = self.job = ""
        if self._head < HEAD:
            self._head += len(data) + 1
            self.page = self.page or PAGE.match(data) is not None
        if SUSPECT.match(data) is None:
            return (self._bare(data),) if any(mark in data for mark in INSIDE) else (data,)
        if data.startswith(JSON_FILE) or (data[:1] == b"{" and JOURNAL_MARK in data):
            entry = _object(data) or {}
            if "stream" in entry and isinstance(entry.get("log"), str):
                text = entry["log"].encode("utf-8", "replace")
                return self._ended(text, whole=text[-1:] in b"\r\n")
            if "__REALTIME_TIMESTAMP" in entry and "MESSAGE" in entry:
                return self._of_journal(entry)
        wrapped = b"{" + line[1] + b"}" if (line := ENTRY.match(data)) is not None else data
        if wrapped[:1] in {b"{", b"["} and WRAPS_TEXT.search(wrapped) and (text := _message_of(wrapped)) is not None:
            return self._ended(text, whole=True)
        if (found := CONTAINER.match(data)) is not None:
            return self._ended(data[found.end() :], whole=found[1] == b"F")
        return (self._bare(data),)

    def flush(self) -> Sequence[bytes]:
        """Return the unfinished cut line."""
        rest, self._cut = self._cut, b""
        return self._pieces(rest)

    def _of_journal(self, entry: Mapping[str, Any]) -> Sequence[bytes]:
        if (text := _message(entry["MESSAGE"])) is not None:
            return self._ended(text, whole=entry.get("_LINE_BREAK") != "line-max")
        self.left_out += 1
        return ()

    def _ended(self, text: bytes, *, whole: bool) -> Sequence[bytes]:
        joined = (self._cut + text)[:LONGEST]
        self._cut = b"" if whole else joined
        return self._pieces(joined) if whole else ()

    def _pieces(self, text: bytes) -> Sequence[bytes]:
        return [self._bare(piece) for piece in ENDS.split(text) if piece]

    def _bare(self, data: bytes) -> bytes:
        for pattern in (DOCKER, JOURNAL, SYSLOG):
            if (found := pattern.match(data)) is not None:
                data = data[found.end() :]
        if b"\x1b" in data:
            data = COLOUR.sub(b"", data)
        if b"\x08" in data:
            data = _retyped(data)
        if self.page and b"&" in data and ENTITY.search(data) is not None:
            data = unescape(MARKUP.sub(b"", data).decode("utf-8", "replace")).encode()
        if data[:1] == b"[" and (found := TORCHRUN.match(data)) is not None:
            self.rank = found[1].decode()
            data = data[found.end() :]
        if data[:1] in {b"(", b"["} and (found := RAY.match(data)) is not None:
            self.job = job[1].decode() if (job := JOB.match(data)) is not None else ""
            data = data[found.end() :]
        if REPEATED_MARK in data and (found := REPEATED.search(data, max(0, len(data) - 600))) is not None:
            data = data[: found.start()]
        return data


def _retyped(data: bytes) -> bytes:
    """Apply a terminal's backspaces to the line."""
    first, *others = data.split(b"\x08")
    kept = bytearray(first)
    for part in others:
        del kept[-1:]
        kept += part
    return bytes(kept)


def _message_of(data: bytes) -> bytes | None:
    """Return the text of a line of structured logging; None for a row of metrics, or any other object."""
    entry = _object(b'{"entries":%s}' % data if data[:1] == b"[" else data)
    if entry is None or any(guess(key) is not None and isinstance(entry[key], (int, float)) for key in entry):
        return None
    text = next((entry[key] for key in TEXTS if isinstance(entry.get(key), str)), None)
    if text is None:  # one list of entries, as log services respond
        text = "\n".join(_texts(entry, DEEPEST)) or None
    return text.encode("utf-8", "replace") if text is not None else None


def _texts(value: object, deepest: int) -> Iterator[str]:
    """Yield the texts of a response's entries: under a usual name, or after a timestamp in nanoseconds (Loki)."""
    if isinstance(value, dict):
        named = [value[key] for key in TEXTS if isinstance(value.get(key), str)]
        yield from named
        for inner in value.values() if deepest and not named else ():
            yield from _texts(inner, deepest - 1)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value[:3]):
        yield from value[1:2] if len(value) > 1 and NANOSECONDS.fullmatch(value[0]) else ()
    elif isinstance(value, list):
        for inner in value if deepest else ():
            yield from _texts(inner, deepest - 1)


def _message(value: object) -> bytes | None:
    """Return the text of a journal entry; of several texts only the last."""
    if isinstance(value, list) and value and isinstance(value[-1], (str, list)):
        value = value[-1]
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    try:
        return bytes(value) if isinstance(value, list) else None
    except (TypeError, ValueError):
        return None


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        row = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
