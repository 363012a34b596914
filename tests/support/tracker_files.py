"""Files of trackers as their clients write them: SwanLab's logs of both versions, MLflow's database."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

Row = tuple[int, Mapping[str, float]]
BLOCK = 32_768
BEGAN = 1_795_695_075
"""Unix seconds of the first row; one a second follows."""

MLFLOW = """
CREATE TABLE experiments (experiment_id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(256) NOT NULL);
CREATE TABLE runs (run_uuid VARCHAR(32) NOT NULL PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), start_time BIGINT,
  end_time BIGINT, lifecycle_stage VARCHAR(20), experiment_id INTEGER);
CREATE TABLE "metrics" ("key" VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
  run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
  CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan));
CREATE TABLE "latest_metrics" ("key" VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT,
  step BIGINT NOT NULL, is_nan BOOLEAN NOT NULL, run_uuid VARCHAR(32) NOT NULL,
  CONSTRAINT latest_metric_pk PRIMARY KEY ("key", run_uuid));
CREATE TABLE params ("key" VARCHAR(250) NOT NULL, value VARCHAR(8000) NOT NULL, run_uuid VARCHAR(32) NOT NULL,
  CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid));
"""
"""The tables that are read, as MLflow 3.17 makes them; the real ones are in the tests of the frameworks."""


def in_blocks(payloads: Iterable[bytes], header: bytes) -> bytes:
    """LevelDB's log format behind a header."""
    data = bytearray(header)
    for payload in payloads:
        left, first = payload, True
        while first or left:
            room = BLOCK - len(data) % BLOCK
            data += b"\0" * (room if room < 7 else 0)
            room = BLOCK - len(data) % BLOCK - 7
            part, left = left[:room], left[room:]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, not left]
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
    return bytes(data)


def swanlab(folder: Path, rows: Sequence[Row], *, old: bool = False, ended: bool = True) -> Path:
    """A run's folder of SwanLab 0.7 (``old``) or 0.10; every key gets the prefix ``train/``."""
    run = folder / "swanlog" / "run-20261126_121109-59yhmqmm"
    run.mkdir(parents=True)
    path = run / ("backup.swanlab" if old else "run-59yhmqmm.swanlab")
    payloads = [
        (_json if old else _record)(f"train/{key}", step, value)
        for step, values in rows
        for key, value in values.items()
    ]
    if ended:
        payloads.append(b'{"model_type": "Footer", "data": {"success": true}}\n' if old else _field(11, _varint(1, 1)))
    path.write_bytes(in_blocks(payloads, b":SWL" + struct.pack("<HB", 0xE1D6, 1 if old else 2)))
    return path


def _json(key: str, step: int, value: float) -> bytes:
    stored = value if math.isfinite(value) else {"nan": "NaN", "inf": "INF", "-inf": "-INF"}[str(value)]
    metric = {"index": step, "data": stored, "create_time": f"2026-11-26T12:{step // 60 % 60:02}:{step % 60:02}+00:00"}
    return json.dumps({"model_type": "Scalar", "data": {"metric": metric, "key": key, "step": step}}).encode() + b"\n"


def _record(key: str, step: int, value: float) -> bytes:
    number = struct.pack("<d", value)
    stored = _field(5, b"\x09" + number if number != bytes(8) else b"")
    time = _field(4, _varint(1, BEGAN + step))
    return _field(13, _field(1, key.encode()) + _varint(2, step) + _varint(3, 1) + time + stored)


def _varint(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _number(value) if value else b""


def _field(field: int, data: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


class Mlflow:
    """A database that a job logs to, one transaction per call as MLflow does."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path)
        self.database.executescript(MLFLOW)
        self._now = BEGAN * 1_000

    def start(self, run: str, name: str = "one", experiment: str = "grpo", **params: object) -> None:
        with self.database:
            self.database.execute("INSERT OR IGNORE INTO experiments VALUES (?, ?)", (len(experiment), experiment))
            self.database.execute(
                "INSERT INTO runs VALUES (?, ?, 'RUNNING', ?, NULL, 'active', ?)",
                (run, name, self._now, len(experiment)),
            )
            self.database.executemany(
                "INSERT INTO params VALUES (?, ?, ?)", [(key, str(value), run) for key, value in params.items()]
            )

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        self._now += 1_000
        stored = [(key, *_stored(value), self._now, run, step) for key, value in values.items()]
        with self.database:
            self.database.executemany(
                "INSERT INTO metrics (key, value, is_nan, timestamp, run_uuid, step) VALUES (?, ?, ?, ?, ?, ?)", stored
            )
            self.database.executemany(
                "INSERT OR REPLACE INTO latest_metrics (key, value, is_nan, timestamp, run_uuid, step)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                stored,
            )

    def end(self, run: str, status: str = "FINISHED") -> None:
        with self.database:
            self.database.execute(
                "UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?", (status, self._now, run)
            )

    def close(self) -> None:
        self.database.close()


def _stored(value: float) -> tuple[float, int]:
    """Value and ``is_nan``, as ``sanitize_metric_value`` makes them."""
    if math.isnan(value):
        return 0.0, 1
    return (math.copysign(1.7976931348623157e308, value) if math.isinf(value) else value), 0


class MlflowFiles:
    """A run of the file store as MLflow 3.17 writes it: the run's own file, one of each parameter and metric."""

    def __init__(self, folder: Path, **params: object) -> None:
        self.folder, self._now = folder, BEGAN * 1_000
        self._state(1)
        for key, value in params.items():
            self._add(f"params/{key}", str(value))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._now += 1_000
        for key, value in values.items():
            self._add(f"metrics/{key}", f"{self._now} {value} {step}\n")

    def end(self, state: int = 3) -> None:
        self._state(state)

    def _state(self, state: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "metrics").mkdir(exist_ok=True)
        (self.folder / "meta.yaml").write_text(
            f"end_time: null\nlifecycle_stage: active\nrun_name: one\nstatus: {state}\ntags: []\nuser_id: root\n"
        )

    def _add(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)


def mlflow_files(folder: Path, rows: Sequence[Row]) -> None:
    """A run of the file store that ended."""
    made = MlflowFiles(folder / "mlruns/754260963767148763/9298a58d8f9f43f9b484c904afc45e3a")
    for step, values in rows:
        made.log(step, values)
    made.end()


def mlflow(path: Path, rows: Sequence[Row]) -> None:
    """A database with one run that ended."""
    with closing(Mlflow(path)) as made:
        made.start("93c1117bb45b44b0a7e2078d9547b3b0")
        for step, values in rows:
            made.log("93c1117bb45b44b0a7e2078d9547b3b0", step, values)
        made.end("93c1117bb45b44b0a7e2078d9547b3b0")
