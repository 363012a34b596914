"""The same rows in many containers: whatever holds them, the same numbers come at the same steps."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import TypeAlias

import pytest

from grpo_watch.engine.records import RawRow, Stream
from grpo_watch.frameworks.guessing import guess
from tests.support.feeding import a_pipeline, opened

Row: TypeAlias = Mapping[str, float]
Files: TypeAlias = Mapping[str, str | bytes]
ROWS: Sequence[Row] = [
    {
        "step": n,
        "loss": round(0.5 - n / 64, 6),
        "reward": n / 16,
        "kl": 0.0 if n > 9 else n / 4096,
        "grad_norm": 1.0 + n / 8,
    }
    for n in range(1, 13)
]
KEYS = ("loss", "reward", "kl", "grad_norm")
SHOWN = ("loss", "reward_mean", "kl_reference", "grad_norm")


def rest(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "step"}


def pairs(row: Row, sign: str = "=", gap: str = " ") -> str:
    return gap.join(f"{key}{sign}{value}" for key, value in row.items())


def block(row: Row, sign: str, before: str) -> str:
    """A line for each number below the step."""
    return "".join(f"\n{before}{key}{sign}{value}" for key, value in rest(row).items())


def of_jobs(text: str) -> str:
    """The lines behind the name of a job, and below them those of another one, whose KL is another."""
    other = text.replace("kl': ", "kl': 9").replace("kl: ", "kl: 9")
    lines = {"lr1e-6": text.split("\n"), "lr1e-5": other.split("\n")}
    return "\n".join(f"({job}, pid=12) {line}" for job, its in lines.items() for line in its)


def by_metric(line: Callable[[str, Sequence[float]], str]) -> str:
    return "".join(f"{line(key, values)}\n" for key, values in columns().items())


def by_line(line: Callable[[Row], str]) -> str:
    return "".join(f"{line(row)}\n" for row in ROWS)


def table(gap: str) -> str:
    return "\n".join([gap.join(ROWS[0]), *(gap.join(map(str, row.values())) for row in ROWS)]) + "\n"


def boxed(side: str) -> str:
    cells = [list(ROWS[0]), *(list(map(str, row.values())) for row in ROWS)]
    ruler = "┼" + "┼".join("─" * 12 for _ in ROWS[0]) + "┼"
    lines = [side + side.join(f" {cell:<10} " for cell in line) + side for line in cells]
    return "\n".join([ruler, lines[0], ruler, *lines[1:], ruler]) + "\n"


def columns() -> dict[str, list[float]]:
    return {key: [row[key] for row in ROWS] for key in ROWS[0]}


def traces() -> list[dict[str, object]]:
    return [{"type": "scatter", "name": key, "x": columns()["step"], "y": columns()[key]} for key in rest(ROWS[0])]


def singles() -> list[dict[str, object]]:
    return [{"step": row["step"], "name": key, "value": value} for row in ROWS for key, value in rest(row).items()]


def points(key: str) -> list[dict[str, float]]:
    return [{"step": row["step"], "value": row[key]} for row in ROWS]


def html() -> str:
    head = "".join(f"<th>{key}</th>" for key in ROWS[0])
    body = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row.values()) + "</tr>\n" for row in ROWS)
    return f'<table border="1" class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def notebook(data: Mapping[str, object]) -> str:
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": ["history"], "outputs": [output]}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FORMS: Mapping[str, Files] = {
    "printed dictionaries": {"train.log": by_line(str)},
    "dictionaries over several lines": {"train.log": by_line(lambda row: pformat(row, width=20))},
    "a list of dictionaries in one line": {"train.log": f"history: {list(ROWS)}\n"},
    "JSON over several lines": {"metrics.json": by_line(lambda row: json.dumps(row, indent=2))},
    "a block under a header": {
        "train.log": by_line(lambda row: f"Step {row['step']}/12:{block(row, '  : ', '    ')}\n")
    },
    "bullets": {"log.md": by_line(lambda row: f"### Step {row['step']}\n{block(row, '**: ', '- **')}\n")},
    "a table of lines and corners": {"train.log": boxed("│")},
    "a table with heavy lines": {"train.log": boxed("┃")},
    "commas in a log": {"train.log": f"loading\n{table(',')}done\n"},
    "a commented table": {"metrics.csv": f"# seed 7\n{table(',')}"},
    "a table by metric": {"metrics.csv": by_metric(lambda key, values: ",".join(map(str, [key, *values])))},
    "a table of single numbers": {
        "metrics.csv": "step,metric,value\n" + "".join(",".join(map(str, one.values())) + "\n" for one in singles())
    },
    "single numbers": {"metrics.jsonl": "".join(json.dumps(one) + "\n" for one in singles())},
    "single numbers in a list": {"metrics.json": json.dumps(singles())},
    "YAML documents": {"metrics.yaml": by_line(lambda row: f"---\n{pairs(row, ': ', chr(10))}")},
    "a YAML list": {"metrics.yml": by_line(lambda row: f"- {pairs(row, ': ', chr(10) + '  ')}")},
    "YAML by step": {"metrics.yaml": by_line(lambda row: f"step_{row['step']}:{block(row, ': ', '  ')}")},
    "arrays by metric": {"train.log": "done\n" + by_metric(lambda key, values: f"{key} = {values}")},
    "arrays of numpy": {"train.log": by_metric(lambda key, values: f"{key}: array({values}, dtype=float32)")},
    "columns beside their data": {
        "metrics.json": json.dumps({"columns": list(ROWS[0]), "data": [list(row.values()) for row in ROWS]})
    },
    "columns by the number of the row": {
        "metrics.json": json.dumps({key: dict(enumerate(values)) for key, values in columns().items()})
    },
    "points of each metric": {"metrics.json": json.dumps({key: points(key) for key in rest(ROWS[0])})},
    "a line of a chart for each metric": {
        "curves.json": json.dumps(
            [{"metric": key, "steps": columns()["step"], "values": columns()[key]} for key in KEYS]
        )
    },
    "two arrays for each metric": {
        "curves.json": json.dumps({key: {"x": columns()["step"], "y": columns()[key]} for key in KEYS})
    },
    "pairs of step and value": {
        "curves.json": json.dumps({key: [[row["step"], row[key]] for row in ROWS] for key in KEYS})
    },
    "two lines of JSON for each step": {
        "metrics.jsonl": by_line(
            lambda row: "\n".join(
                json.dumps({"step": row["step"], **{key: row[key] for key in keys}})
                for keys in (("loss", "reward"), ("kl", "grad_norm"))
            )
        )
    },
    "the step behind its metrics": {
        "train.log": by_line(lambda row: f"{pairs(rest(row), '=', ', ')} (step {row['step']})")
    },
    "a table with double lines": {"train.log": boxed("║")},
    "packed YAML": {"metrics.yaml.gz": gzip.compress(by_line(lambda row: f"- {json.dumps(row)}").encode())},
    "a Markdown table in a notebook": {"train.ipynb": notebook({"text/markdown": table(" | ")})},
    "a chart": {"chart.json": json.dumps({"data": traces(), "layout": {}})},
    "the page of a chart": {"chart.html": f'<script>Plotly.newPlot("x", {json.dumps(traces())}, {{}})</script>'},
    "a page with a table": {"metrics.html": html()},
    "a frame in a notebook": {"train.ipynb": notebook({"text/html": html()})},
    "structured logging": {"train.jsonl": by_line(lambda row: json.dumps({"level": "info", "message": pairs(row)}))},
    "events with a payload": {"train.jsonl": by_line(lambda row: json.dumps({"event": "train", "payload": row}))},
    "events of nested texts": {
        "train.jsonl": by_line(
            lambda row: json.dumps(
                {"event": "step", "step": row["step"], "data": {"metrics": {key: str(row[key]) for key in KEYS}}}
            )
        )
    },
    "updates of episodes": {
        "train.jsonl": by_line(
            lambda row: json.dumps({"steps": 8, "episode": 1, "update_step": row["step"], **rest(row)})
        )
    },
    "episodes of some steps": {
        "train.log": by_line(lambda row: f"Episode {row['step']} | steps: 8 | {pairs(rest(row), ': ', ' | ')}")
    },
    "a log of two jobs": {
        "train.log": by_line(
            lambda row: f"(lr1e-6, pid=12) {pairs(row)}\n(lr1e-5, pid=34) {pairs({**row, 'reward': -1.0, 'kl': 9.0})}"
        )
    },
    "lines of Influx": {
        "train.log": by_line(
            lambda row: f"train,host=a,run=b7 {pairs(rest(row), '=', ',')},step={row['step']}i 1700000000000000000"
        )
    },
    "lines of Influx of two ranks": {
        "train.log": by_line(
            lambda row: "\n".join(
                f"train,rank={rank} {pairs({**rest(row), 'kl': kl}, '=', ',')},step={row['step']}i 1700000000000000000"
                for rank, kl in enumerate((row["kl"], 9.0))
            )
        )
    },
    "blocks of two jobs": {"train.log": by_line(lambda row: of_jobs(f"Step {row['step']}" + block(row, ": ", "")))},
    "dictionaries of two jobs": {"train.log": by_line(lambda row: of_jobs(str(row)))},
    "UTF-16 without a mark": {"train.log": by_line(pairs).encode("utf-16-le")},
    "a file per step": {f"step_{row['step']:05}.json": json.dumps(rest(row)) for row in ROWS},
    "a text per step": {f"logs/step_{row['step']}.txt": pairs(rest(row), ": ", "\n") for row in ROWS},
    "a folder per step": {f"step_{row['step']}/metrics.json": json.dumps(rest(row)) for row in ROWS},
    "a chart export per metric": {
        f"wandb_export_{key}.csv": f'"Step","run1 - train/{key}","run1 - train/{key}__MIN"\n'
        + by_line(lambda row, key=key: f'"{row["step"]}","{row[key]}","{row[key]}"')
        for key in rest(ROWS[0])
    },
    "a download of TensorBoard per metric": {
        f"run1-tag-train_{key}.csv": "Wall time,Step,Value\n"
        + by_line(lambda row, key=key: f"1.5,{row['step']},{row[key]}")
        for key in rest(ROWS[0])
    },
    "a file of mlflow per metric": {
        f"mlruns/0/run/metrics/{key}": by_line(lambda row, key=key: f"1772000000000 {row[key]} {row['step']}")
        for key in rest(ROWS[0])
    },
    "a run of mlflow's file store": {
        f"mlruns/0/run/metrics/{key}": by_line(lambda row, key=key: f"1772000000000 {row[key]} {row['step']}")
        for key in rest(ROWS[0])
    }
    | {"mlruns/0/run/meta.yaml": "artifact_uri: mlruns/0/run/artifacts\nstatus: 3\n"},
    "decimal commas": {"metrics.csv": table(";").replace(".", ",")},
    "units in the header": {"metrics.csv": table(",").replace("grad_norm", "grad_norm (s)", 1)},
    "tables of TOML": {"metrics.toml": by_line(lambda row: f"[[step]]\n{pairs(row, ' = ', chr(10))}\n")},
    "arrays of TOML": {"metrics.toml": by_metric(lambda key, values: f"{key} = {values}")},
    "sections": {"metrics.ini": by_line(lambda row: f"[step_{row['step']}]\n{pairs(rest(row), ' = ', chr(10))}\n")},
    "elements": {"metrics.xml": by_line(lambda row: "".join(f"<{key}>{row[key]}</{key}>" for key in row))},
    "a title between rulers": {
        "train.log": by_line(lambda row: f"===== Step {row['step']}/12 =====\n{pairs(rest(row), ' = ', chr(10))}\n")
    },
    "tuples in a list": {"train.log": by_line(lambda row: f"OrderedDict({list(row.items())})")},
    "numbers in brackets": {
        "train.log": by_line(lambda row: f"(step {row['step']}) " + " ".join(f"{k}({row[k]})" for k in KEYS))
    },
    "single numbers on lines": {
        "train.log": "".join(f"step={one['step']} name={one['name']} value={one['value']}\n" for one in singles())
    },
    "shares in percent": {"train.log": by_line(lambda row: f"{pairs(row, ': ', ' | ')} | clip_ratio: 0.000%")},
    "an answer of a log service": {
        "cloud.json": json.dumps({"events": [{"timestamp": 1, "message": pairs(row)} for row in ROWS]})
    },
    "entries over several lines": {"cloud.json": json.dumps([{"textPayload": pairs(row)} for row in ROWS], indent=2)},
    "JSON within JSON": {"train.jsonl": by_line(lambda row: json.dumps({"level": "info", "message": json.dumps(row)}))},
    "bars below another one": {
        "train.log": "".join(
            f"\rStep:  5%|# | {row['step']}/12 [00:04<00:29,  1.00s/it, {pairs(rest(row), '=', ', ')}]\x1b[A"
            for row in ROWS
        )
    },
    "a counter above each row": {
        "train.log": by_line(
            lambda row: (
                f"Iteration {row['step'] + 4}\nrollout: reward: {row['reward']} loss: {row['loss']}"
                f"\nupdate: kl: {row['kl']} grad_norm: {row['grad_norm']}"
            )
        )
    },
    "the page of a log": {"log.html": f"<html><body><pre>{by_line(pairs)}</pre></body></html>"},
    "a page that counts iterations": {"log.html": html().replace("<th>step</th>", "<th>Iteration</th>")},
    "a chart with shared steps": {
        "plot.json": json.dumps(
            {"labels": columns()["step"], "datasets": [{"label": key, "data": columns()[key]} for key in KEYS]}
        )
    },
    "a series of pairs": {
        "plot.json": json.dumps(
            {"series": [{"name": key, "data": [[row["step"], row[key]] for row in ROWS]} for key in KEYS]}
        )
    },
    "an export of single numbers": {
        "metrics.json": json.dumps(
            [{"metricName": one["name"], "metricValue": str(one["value"]), "step": one["step"]} for one in singles()]
        )
    },
    "a table of each metric": {
        f"train_{key}.csv": "step,timestamp,value\n" + by_line(lambda row, key=key: f"{row['step']},1.5,{row[key]}")
        for key in rest(ROWS[0])
    },
    "pairs between tabs": {"train.log": by_line(lambda row: pairs(row, "\t", "\t"))},
    "a commented header": {"metrics.txt": "# " + table(" ")},
    "another sign of minus": {"train.log": by_line(lambda row: f"{pairs(row, ' ', ' | ')} | entropy \u22120.5")},
    "text before the first number": {
        "train.log": by_line(lambda row: f"logged @ {row['step']}: {pairs(rest(row), ' ', ', ')}")
    },
    "keys without quotes": {"train.log": by_line(lambda row: f"{{ {pairs(row, ': ', ', ')} }}")},
    "a dictionary in a dictionary": {
        "train.log": by_line(lambda row: f"INFO { ({'step': row['step'], 'train': rest(row)}) }")
    },
    "the sign of assignments": {"train.log": by_line(lambda row: pairs(row, " := "))},
    "tabs as rsyslog writes them": {"train.log": by_line(lambda row: pairs(row, "=", ";#011"))},
    "an object for each number": {
        "metrics.jsonl": by_line(
            lambda row: json.dumps({"step": row["step"], **{key: {"value": value} for key, value in rest(row).items()}})
        )
    },
    "entries of a log service in one line": {
        "cloud.json": json.dumps([{"textPayload": pairs(row), "timestamp": "1"} for row in ROWS])
    },
    "several calls for each step": {
        "metrics.csv": "epoch,grad_norm,kl,loss,reward,step\n"
        + by_line(
            lambda row: (
                f"0,{row['grad_norm']},{row['kl']},,,{row['step']}\n0,,,{row['loss']},{row['reward']},{row['step']}"
            )
        )
    },
    "steps with a point, a table of each metric": {
        f"train_{key}.csv": "step,timestamp,value\n" + by_line(lambda row, key=key: f"{row['step']}.0,1.5,{row[key]}")
        for key in rest(ROWS[0])
    },
    "emphasis and pictures in a table": {
        "log.md": "\n| 🔢 step | "
        + " | ".join(f"📈 {key}" for key in KEYS)
        + f" |\n|{':---:|' * 5}\n"
        + by_line(lambda row: f"| **{row['step']}** | " + " | ".join(f"`{row[key]}`" for key in KEYS) + " |")
    },
    "single numbers behind a mark": {
        "mllog.txt": "".join(
            ":::MLLOG "
            + json.dumps(
                {
                    "namespace": "",
                    "event_type": "POINT_IN_TIME",
                    "key": one["name"],
                    "value": one["value"],
                    "metadata": {"file": "train.py", "step_num": one["step"]},
                }
            )
            + "\n"
            for one in singles()
        )
    },
    "single numbers of a context": {
        "aim.csv": "run.hash,metric.name,metric.context,step,value\n"
        + "".join(f'a1,{one["name"]},"{{""subset"": ""train""}}",{one["step"]},{one["value"]}\n' for one in singles())
    },
    "the output of a batch system": {"train.o12345": by_line(pairs)},
    "a recording of a terminal": {
        "typescript": "Script started\r\n\x1b]0;gpu1\x07\x1b[?2004h$ python train.py\r\n\x1b[?2004l\r"
        + by_line(lambda row: f"\x1b[K{row}\r")
    },
    "backspaces": {
        "screenlog.0": by_line(
            lambda row: f"working|\b/\b-\b \b\b\b\b\b\b\b\b\bstep {row['step']}: {pairs(rest(row))}\r"
        )
    },
    "a logger's place before the time": {
        "train.log": by_line(lambda row: f"[INFO|trainer.py:1234] 2026-03-02 10:00:00,123 >> {pairs(row, ': ', ', ')}")
    },
    "an answer of Loki": {
        "loki.json": json.dumps(
            {"data": {"result": [{"stream": {}, "values": [[f"{10**18 + row['step']}", str(row)] for row in ROWS]}]}}
        )
    },
    "the page of a notebook": {
        "train.html": "<html><body><div><pre><span></span>"
        + by_line(str).replace("'", "&#39;")
        + "</pre></div></body></html>"
    },
    "a title in a line of its own": {
        "train.log": by_line(
            lambda row: (
                f"2026-03-02 10:00:00,101 INFO trainer.py:77 Metrics at step {row['step']}:\n"
                + "\n".join(f"2026-03-02 10:00:00,101 INFO trainer.py:78     {k}: {row[k]}" for k in KEYS)
            )
        )
    },
    "bzip2": {"metrics.csv.bz2": bz2.compress(table(",").encode())},
}


def numbers(folder: Path) -> dict[int, dict[str, float | None]]:
    """What is read in a folder, by step, in canonical names."""
    run = opened(folder, a_pipeline())
    found: dict[int, dict[str, float | None]] = {}
    for source in run.sources:
        for item in [*source.source.poll(None), *source.source.finish()]:
            if isinstance(item, RawRow) and item.step is not None:
                named = {guess(key) or key: value for key, value in item.values.items()}
                found.setdefault(item.step, {}).update({key: named[key] for key in SHOWN if key in named})
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_container_changes_no_number(form: str, tmp_path: Path) -> None:
    for name, content in FORMS[form].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    shift = 4 if form == "a counter above each row" else 0
    expected = {int(row["step"]) + shift: dict(zip(SHOWN, rest(row).values(), strict=True)) for row in ROWS}
    assert numbers(tmp_path) == expected


@pytest.mark.parametrize("field", ["type", "phase", "split", "mode", "stage"])
@pytest.mark.parametrize("form", ["json", "csv", "log"])
def test_a_row_that_names_another_stream_is_none_of_training(field: str, form: str, tmp_path: Path) -> None:
    rows = [{field: "train", **row} for row in ROWS]
    for at in (12, 8, 4):
        rows.insert(at, {field: "val", "step": at, "loss": 9.0, "reward": 1.0, "kl": 0.5, "grad_norm": 0.0})
    texts = {
        "json": "".join(json.dumps(row) + "\n" for row in rows),
        "csv": "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n",
        "log": "".join(f"{row}\n" for row in rows),
    }
    (tmp_path / {"json": "metrics.jsonl", "csv": "metrics.csv", "log": "train.log"}[form]).write_text(texts[form])

    run = opened(tmp_path, a_pipeline())
    items = [item for one in run.sources for item in [*one.source.poll(None), *one.source.finish()]]
    found = [(item.step, item.values["kl"]) for item in items if isinstance(item, RawRow) and item.stream is None]
    assert found == [(row["step"], row["kl"]) for row in ROWS]
    assert sum(isinstance(item, RawRow) and item.stream is Stream.EVAL for item in items) == 3
