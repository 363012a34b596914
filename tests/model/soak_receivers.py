"""Receivers of the kill soak: one server that plays webhook, PagerDuty, Alertmanager and two chats, and misbehaves."""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.receiving import secret_file

FAILURES = {
    "refused": False,
    "silent": False,
    "reset": False,
    "500": False,
    "301": False,
    "429": False,
    "429, Retry-After": False,
    "no HTTP": False,
    "lost": True,
    "silent after its head": True,
    "a byte a second": True,
    "half a body": True,
    "wrong body": True,
}
"""Ways to fail, and whether the request was taken all the same; Slack's wrong body is a refusal with a good status."""
FATES = (*("ok",) * 12, *FAILURES)
SILENCE = 4.0
"""Seconds until a silent connection ends, and in which one drips: longer than the daemons of the soak wait."""
DOWN = 0.3
"""Seconds for which no connection is accepted."""
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
"""What a port that speaks TLS answers to plain HTTP."""
BODIES = {
    "ok": b"",
    "wrong body": b'{"ok": [nul',
    **dict.fromkeys(("500", "301", "429", "429, Retry-After"), b"x"),
}
"""What is answered at all, and its body."""
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"

Key = tuple[str, str, int]
"""Run, status and step of an alert."""
HEADLINE = re.compile(r"(WARNING|RESOLVED) \S+ · (run\d+) · step (\d+)")
"""What a message for people says of an alert; in Slack's twice."""
TEXTS = {"slack": "run0", "apprise": "run1"}
"""Receivers of messages for people, one a second, and the run of which each gets them."""


@dataclass
class Incidents:
    """What a receiver that keys alerts shows people: an incident opens, and closes, once per episode.

    ``changes`` counts openings and closings by run, ``opened`` openings by run and episode, where an event names that.
    """

    opened: Counter[tuple[str, str]] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    shown: set[str] = field(default_factory=set)

    def note(self, key: str, run: str, *, firing: bool, episode: str = "") -> None:
        """An event arrived; one that changes nothing is not shown."""
        if firing == (key in self.shown):
            return
        self.changes[run] += 1
        if firing:
            self.shown.add(key)
            self.opened[run, episode] += bool(episode)
        else:
            self.shown.remove(key)

    def missing(self, expected: Mapping[str, Sequence[Key]]) -> int:
        """Openings and closings that people have not seen yet."""
        return sum(max(0, len(keys) - self.changes[run]) for run, keys in expected.items())

    def doubled(self, expected: Mapping[str, Sequence[Key]]) -> int:
        """Openings and closings beyond one per episode."""
        more = sum(max(0, self.changes[run] - len(keys)) for run, keys in expected.items())
        return max(more, sum(max(0, times - 1) for times in self.opened.values()))


@dataclass
class Texts:
    """What people read in a chat, in order: without an id they see a message again that is repeated."""

    run: str
    got: list[Key] = field(default_factory=list)

    def note(self, body: str) -> None:
        """A message arrived."""
        status = {"WARNING": "firing", "RESOLVED": "resolved"}
        found = [(run, status[word], int(step)) for word, run, step in HEADLINE.findall(body)]
        self.got += dict.fromkeys(found)

    def missing(self, expected: Mapping[str, Sequence[Key]]) -> int:
        """Messages that have not arrived yet."""
        return len(set(expected[self.run]) - set(self.got))

    def wrong(self, expected: Mapping[str, Sequence[Key]]) -> int:
        """Messages about what never was, and 1 where they came in another order."""
        first = [key for key in dict.fromkeys(self.got) if key in expected[self.run]]
        order = [key for key in expected[self.run] if key in first]
        return len(set(self.got) - set(expected[self.run])) + (first != order)

    @property
    def repeated(self) -> int:
        """Messages that came again."""
        return len(self.got) - len(set(self.got))


@dataclass
class Hook:
    """The receivers; ``got`` is what the webhook was sent, in order, with its ids."""

    chance: random.Random
    well: bool = False
    got: list[tuple[Key, str]] = field(default_factory=list)
    keyed: dict[str, Incidents] = field(default_factory=dict)
    texts: dict[str, Texts] = field(default_factory=dict)
    runs_of: dict[str, str] = field(default_factory=dict)
    fates: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def take(self, path: str, document: Any) -> str:
        """Note a request, or not; what happens to its sender."""
        with self.lock:
            fate = "ok" if self.well else self.chance.choice(FATES)
            self.fates[fate] += 1
            name = path.strip("/")
            if FAILURES.get(fate, True) and (name, fate) != ("slack", "wrong body"):
                if name in self.texts:
                    self.texts[name].note(json.dumps(document, ensure_ascii=False))
                else:
                    {"hook": self._webhook, "pagerduty": self._pagerduty}.get(name, self._alertmanager)(document)
        return fate

    def arrived(self) -> int:
        """How much arrived so far."""
        with self.lock:
            return len(self.got) + sum(len(texts.got) for texts in self.texts.values())

    def waited_for(self, expected: Mapping[str, Sequence[Key]]) -> int:
        """What has not arrived yet at the receivers beside the webhook."""
        with self.lock:
            return sum(one.missing(expected) for one in (*self.keyed.values(), *self.texts.values()))

    def sinks(self, folder: Path, rule: str, *, keyed: bool) -> str:
        """The receivers, as settings; ``keyed``: all, else the webhook alone."""
        sinks = [f"{{type: webhook, url: '{self.url}/hook', name: hook, only_rules: [{rule}]}}"]
        if keyed:
            key = secret_file(folder / "routing-key", "a-key")
            self.keyed = {"pagerduty": Incidents(), "alertmanager": Incidents()}
            address = f"url: '{self.url}/pagerduty', routing_key_file: '{key}'"
            sinks.append(f"{{type: pagerduty, name: pagerduty, {address}, only_rules: [{rule}]}}")
            sinks.append(f"{{type: alertmanager, name: alertmanager, url: '{self.url}/am', only_rules: [{rule}]}}")
            self.texts = {name: Texts(run) for name, run in TEXTS.items()}
            slack = secret_file(folder / "slack", f"{self.url}/slack")
            apprise = secret_file(folder / "apprise", f"{self.url.replace('http', 'json')}/apprise")
            wants = f"only_rules: [{rule}], digest: false"
            sinks.append(f"{{type: slack, name: slack, webhook_url_file: '{slack}', only_runs: [run0], {wants}}}")
            sinks.append(f"{{type: apprise, name: apprise, url_file: '{apprise}', only_runs: [run1], {wants}}}")
        return f"[{', '.join(sinks)}]"

    def _webhook(self, document: dict[str, Any]) -> None:
        for part in document.get("parts") or (document,):
            self.got.append(((part["run"], part["status"], part["step"]), part["id"]))

    def _pagerduty(self, event: dict[str, Any]) -> None:
        key, firing = event["dedup_key"], event["event_action"] == "trigger"
        if firing:
            self.runs_of[key] = event["payload"]["source"]
        episode = event["payload"]["custom_details"]["alert"] if firing else ""  # names the step
        self.keyed["pagerduty"].note(key, self.runs_of.get(key, ""), firing=firing, episode=episode)

    def _alertmanager(self, alerts: list[dict[str, Any]]) -> None:
        for alert in alerts:
            labels, ends = alert["labels"], datetime.fromisoformat(alert["endsAt"].replace("Z", "+00:00"))
            firing = ends > datetime.now(timezone.utc)
            key = json.dumps(labels, sort_keys=True)
            self.keyed["alertmanager"].note(key, labels["run"], firing=firing)


class Handler(BaseHTTPRequestHandler):
    """Answers, or fails to, as the hook says."""

    server: Server

    def do_POST(self) -> None:
        """One request; the connection ends with it, unless it is answered."""
        document = json.loads(self.rfile.read(int(self.headers["content-length"])))
        fate = self.server.hook.take(self.path, document)
        if fate in BODIES:
            self._answer(fate)
            return
        self.close_connection = True
        if fate == "refused":
            self.server.down.set()
        elif fate == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif fate == "a byte a second":
            self._drip()
        self.wfile.write({"no HTTP": TLS_ALERT, "half a body": HALF, "silent after its head": HALF}.get(fate, b""))
        if fate.startswith("silent"):
            self.server.over.wait(SILENCE)

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def _drip(self) -> None:
        for byte in HALF[: int(SILENCE)]:
            self.wfile.write(bytes([byte]))
            self.server.over.wait(1.0)

    def _answer(self, fate: str) -> None:
        body = b"no_service" if (self.path, fate) == ("/slack", "wrong body") else BODIES[fate]
        self.send_response(200 if fate in {"ok", "wrong body"} else int(fate[:3]))
        if fate == "301":
            self.send_header("Location", f"{self.server.hook.url}/elsewhere")
        if fate == "429, Retry-After":
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """``down`` asks it to refuse connections for a while, ``over`` ends it."""

    block_on_close, timeout = False, 0.05

    def __init__(self, hook: Hook, over: threading.Event, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.hook, self.over, self.down = hook, over, threading.Event()

    def serve(self) -> None:
        """Answer until it is over, or refuses connections."""
        while not self.over.is_set() and not self.down.is_set():
            self.handle_request()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """A client was killed."""


@contextmanager
def serving(hook: Hook) -> Iterator[None]:
    """The hook behind a port of this machine."""
    over = threading.Event()
    server = Server(hook, over)
    hook.url = f"http://127.0.0.1:{server.server_address[1]}"

    def serve(server: Server) -> None:
        while not over.is_set():
            server.serve()
            if not over.wait(DOWN):
                server = Server(hook, over, server.server_address[1])

    with joined(threading.Thread(target=serve, args=(server,), daemon=True), over):
        yield


@contextmanager
def joined(thread: threading.Thread, over: threading.Event) -> Iterator[None]:
    """The thread is started, and ends with the event."""
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
