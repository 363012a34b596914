"""A watch to which every kind of secret is given, and runs that hold some: where each was planted, and its search."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from tests.support.bundles import unpack
from tests.support.every_receiver import fullest, pointed
from tests.support.receiving import Answer, Receiving, receiving, secret_file
from tests.support.wandb_server import Fault, ServedRun, WandbServer, served

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
CRASHED = "trl-1.16.0-19-crash-resume"
NAMES = (
    *("hmac", "header", "user", "query", "urlfile", "gateway", "gatewayuser"),
    *("token", "proxy", "args", "resolved", "config", "printed", "shell", "model", "address"),
    *("asked", "bearer", "launch", "env", "flag", "entry"),
)
SECRETS = {name: f"planted{name}5e1f0000" for name in NAMES}
SECRETS["hub"] = "hf_" + "plantedhub" * 3
SECRETS["registry"] = "npm_" + "plantednpm" * 3
SECRETS["wandb"] = "5" + "ec2e7" * 7 + "beef"
SECRETS["word"] = "correcthorsebatterystaple"
"""A secret that is one plain word, as error words are; a receiver repeats it alone."""
ECHO = b"you sent " + " ".join(SECRETS.values()).encode()
REMOTE = "wandb://ada/math/r1"


@dataclass(frozen=True)
class Planted:
    """Where everything is."""

    config: Path
    servers: Mapping[str, Receiving]
    wandb: WandbServer
    textfile: Path
    authority: Path
    environment: Mapping[str, str]
    secrets: Mapping[str, str]


def leaks(places: Mapping[str, bytes], secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each place with each secret that is in it, as it is or in base64 (as ``Authorization: Basic`` has it)."""
    return [
        (place, name)
        for place, text in places.items()
        for name, word in secrets.items()
        if any(form in text for form in forms(word))
    ]


def forms(word: str) -> list[bytes]:
    """The word, and what of its base64 does not depend on what stands around it, for each of its three places."""
    found = [word.encode()]
    for before in range(3):
        coded = base64.b64encode(b"x" * before + word.encode())
        found.append(coded[4 if before else 0 : len(coded) // 4 * 4 - 4])
    return found


def kept_in(file: Path) -> dict[str, bytes]:
    """What a file holds, by place: its bytes, and of a database each column that a connection sees; unpacked too."""
    places = {str(file): file.read_bytes()}
    if places[str(file)].startswith(b"SQLite format 3\0"):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:  # what is in the WAL too
            places |= {f"{file} {column}": b"\n".join(values) for column, values in _values(database).items()}
    places |= {f"{place} unpacked": unpacked(content) for place, content in places.items()}
    return {place: content for place, content in places.items() if content}


def _values(database: sqlite3.Connection) -> dict[str, list[bytes]]:
    """The values of every column of every table."""
    found = dict[str, list[bytes]]()
    for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        cursor = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608  its own table
        names = [f"{table}.{column[0]}" for column in cursor.description]
        for row in cursor:
            for name, value in zip(names, row, strict=True):
                found.setdefault(name, []).append(value if isinstance(value, bytes) else str(value).encode())
    return found


def unpacked(content: bytes) -> bytes:
    """What every zlib stream in these bytes holds, wherever it begins."""
    found, view = [], memoryview(content)
    for head in re.finditer(rb"x[\x01\x5e\x9c\xda]", content):
        with suppress(zlib.error):
            found.append(zlib.decompressobj().decompress(view[head.start() :]))
    return b"\n".join(found)


def plant_runs(folder: Path) -> None:
    """A frozen run whose settings hold tokens, and one that died with some in its last words."""
    run = unpack(FROZEN, folder)
    (arguments,) = run.rglob("args.json")
    held = json.loads(arguments.read_text())
    tokens = {
        "hub_token": SECRETS["args"],
        "wandb_api_key": SECRETS["args"],
        "HF_TOKEN": SECRETS["hub"],
        "model": f"https://ada:{SECRETS['model']}@models.example/qwen?key={SECRETS['model']}",
        "training_args": f"GRPOConfig(hub_token='{SECRETS['resolved']}', {held.get('training_args') or ''}",
        "env": {"WANDB_API_KEY": SECRETS["args"]},
    }
    arguments.write_text(json.dumps({**held, **tokens}))
    files = arguments.parent / "wandb" / "run-20261121_082420-t0k535x1" / "files"
    files.mkdir(parents=True)
    (files / "config.yaml").write_text(f"hub_token: {{value: {SECRETS['config']}}}\nbeta: {{value: 0.04}}\n")
    (files / "wandb-metadata.json").write_text(json.dumps({"args": ["--hub_token", SECRETS["config"]]}))
    other = unpack(CRASHED, folder)
    log = other / "train.log"
    printed = [
        f"+ export HF_TOKEN={SECRETS['shell']}",
        f"+ python train.py --hub_token {SECRETS['launch']} --use_wandb {SECRETS['launch']} --beta 0.04",
        "GRPOConfig(",
        "beta=0.04,",
        f"hub_token={SECRETS['printed']},",
        ")",
    ]
    died = (
        f'requests.exceptions.HTTPError: --token {SECRETS["flag"]} {{"token": "{SECRETS["entry"]}"}} '
        f"{SECRETS['registry']}: 401 Client Error: Unauthorized for url: "
        f"https://ada:{SECRETS['address']}@hub.example/api?token={SECRETS['asked']} with "
        f"{{'Authorization': 'Bearer {SECRETS['bearer']}'}}, token {SECRETS['hub']}"
    )
    whole = log.read_text(errors="replace").partition("ValueError: could not parse")[0]
    log.write_text("\n".join([*printed, f"{whole}{died}", ""]))


@contextmanager
def planted(folder: Path) -> Iterator[Planted]:
    """Receivers that fail and repeat every secret, and one of each kind that takes all; the settings that name them."""
    fails = {
        "refuses": Answer(403, {"X-Echo": ECHO.decode()}, ECHO),
        "breaks": Answer(500, body=ECHO),
        "echo": Answer(403, body=SECRETS["word"].encode()),
        "proxy": Answer(407, {"X-Echo": ECHO.decode()}, ECHO),
        "hidden": Answer(302, {"Location": f"http://ada:{SECRETS['urlfile']}@other.example/"}, ECHO),
    }
    with ExitStack() as stack:
        servers = {name: stack.enter_context(receiving(answer)) for name, answer in fails.items()}
        wandb = stack.enter_context(served())
        wandb.add("ada/math", ServedRun("r1", config={"hub_token": SECRETS["config"]}))
        shown = base64.b64encode(f"api:{SECRETS['wandb']}".encode()).decode()
        wandb.standing = Fault(500, f"{SECRETS['wandb']} is no key, {shown} neither".encode())
        proxy = servers["proxy"].url.replace("//", f"//ada:{SECRETS['proxy']}@")
        environment = {
            "HTTPS_PROXY": proxy,
            "https_proxy": proxy,
            "WANDB_API_KEY": SECRETS["wandb"],
            "WANDB_BASE_URL": wandb.url,
            "HF_TOKEN": SECRETS["hub"],
            "GRPO_WATCH_SECRET": SECRETS["env"],
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "XDG_STATE_HOME": str(folder / "home"),
        }
        for place in ("home", "tmp", "secrets"):
            (folder / place).mkdir()
        textfile = folder / "secrets" / "grpo.prom"
        web, more = _locked(folder)
        config = folder / "grpo-watch.yaml"
        sinks = _failing(folder, servers)
        for sink in fullest():
            kind = sink.type
            service = stack.enter_context(receiving())

            def word(key: str, kind: str = kind) -> str:
                return more.setdefault(f"{kind} {key}", f"planted{len(more)}{kind}5e1f0000")

            sinks.append(pointed(sink, service.url, folder / "secrets", word))
            if kind != "textfile":
                servers[kind] = service
        config.write_text(json.dumps({"sinks": sinks, "web": web, "notify_backlog": "all"}))  # JSON is YAML
        authority, secrets = folder / "ca.pem", {**SECRETS, **more}
        yield Planted(config, servers, wandb, textfile, authority, environment, secrets)


def _failing(folder: Path, servers: Mapping[str, Receiving]) -> list[dict[str, Any]]:
    """Receivers that are answered with an error, in every way to give a secret."""

    def kept(name: str, text: str) -> str:
        return str(secret_file(folder / "secrets" / name, text))

    at = {name: server.url.removeprefix("http://") for name, server in servers.items()}
    hidden = f"http://{at['hidden']}/robot/{SECRETS['urlfile']}"
    return [
        {
            "type": "webhook",
            "url": f"http://me:{SECRETS['user']}@{at['refuses']}/hook?key={SECRETS['query']}",
            "secret_file": kept("hmac", SECRETS["hmac"]),
            "header_files": {"X-Token": kept("header", SECRETS["header"])},
        },
        {"type": "webhook", "url": f"http://{at['echo']}/", "header_files": {"X-Token": kept("w", SECRETS["word"])}},
        {"type": "webhook", "name": "through the proxy", "url": "https://receiver.example/"},
        {"type": "webhook", "url_file": kept("url", hidden)},
        {
            "type": "pushgateway",
            "url": f"http://me:{SECRETS['gatewayuser']}@{at['breaks']}",
            "header_files": {"X-Key": kept("gateway", SECRETS["gateway"])},
        },
    ]


def _locked(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Every way to lock the page, and what of that is secret: a line of the private key."""

    def kept(name: str, text: str) -> str:
        return str(secret_file(folder / "secrets" / name, text))

    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    key = made.private_key_pem.bytes().decode()
    web = {
        "token_file": kept("token", SECRETS["token"]),
        "tls_cert": str(folder / "cert.pem"),
        "tls_key": kept("key.pem", key),
    }
    return web, {"key": key.splitlines()[1]}
