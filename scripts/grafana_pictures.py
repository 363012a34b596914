"""Writes docs/images/<dashboard>.png: each panel drawn from what a real Prometheus answers to its queries.

Not Grafana itself: panels lie, are named and coloured as in the dashboard. Recorded runs are written again, once a
second, while grpo-watch watches them and Prometheus scrapes it. Run with ``PYTHONPATH=.``.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.conftest import find_program
from tests.support.bundles import unpack
from tests.support.process import watching
from tests.support.prometheus import shipped_prometheus

ROOT = Path(__file__).resolve().parent.parent
RUNS = (
    "trl-1.16.0-04-healthy-lora",
    "ms-swift-4.6.0-04b-frozen-optnoop-full",
    "trl-1.16.0-11-dup-stride3",
    "trl-1.16.0-12-greedy",
    "ms-swift-4.6.0-19-healthy-cosine-warmup",
)
ENGINES = ("nemo-rl.jsonl", "slime.log", "trl-async.jsonl", "verl.log")
"""Lines of frameworks that log what the others don't: about the rollout engine, tools and turns."""
SHOWN = "trl-1.16.0-11-dup-stride3"
"""The run that the board of one run shows."""
SECONDS, WRITTEN = 90, 0.9
"""How long it takes, and the part that is written: the jobs still run when the pictures are taken."""
TEXTS = {".log", ".jsonl"}
COLUMNS, WIDE, HIGH = 24, 0.5, 0.38
"""Grafana's grid, and inches of a cell."""
BACK, PANEL, INK, DIM = "#111217", "#181b1f", "#ccccdc", "#8e8e99"
STATES = {0: "#73bf69", 1: "#ff9830", 2: "#f2495c"}
LINES = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0")
MOST_BYTES = 150_000
ROWS, LONGEST = 8, 40
KEYS = ("run", "rule", "severity", "instance", "source", "version", "framework")


def written(folder: Path, staged: Path) -> Iterator[None]:
    """Each turn writes what the jobs had written by then."""
    files = [file for file in staged.rglob("*") if file.is_file()]
    for second in range(1, SECONDS + 1):
        share = WRITTEN * second / SECONDS
        for file in files:
            copy = folder / file.relative_to(staged)
            saved = re.search(r"checkpoint-(\d+)", str(file))
            if file.suffix in TEXTS and saved is None:
                lines = file.read_bytes().splitlines(keepends=True)
                done = copy.stat().st_size if copy.exists() else 0
                copy.parent.mkdir(parents=True, exist_ok=True)
                with copy.open("ab") as growing:
                    growing.write(b"".join(lines[: round(share * len(lines))])[done:])
            elif not copy.exists() and share >= (int(saved[1]) / 100 if saved else 0.0):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
        yield


def expression(text: str) -> str:
    """With Grafana's variables filled in."""
    text = text.replace('run="$run"', f'run="{SHOWN}"').replace("$__rate_interval", "30s")
    return re.sub(r'=~?"\$(instance|run)"', '=~".*"', text)


def answer(client: httpx.Client, target: dict[str, Any], *, start: float, end: float, at_once: bool) -> list[Any]:
    """Series of one query; with their newest value only where the panel shows one."""
    query = {"query": expression(target["expr"])}
    if at_once:
        got = client.get("/api/v1/query", params={**query, "time": str(end)}).json()["data"]["result"]
        return [{"metric": each["metric"], "values": [each["value"]]} for each in got]
    times = {"start": str(start), "end": str(end), "step": "2"}
    found: list[Any] = client.get("/api/v1/query_range", params={**query, **times}).json()["data"]["result"]
    return found


def number(value: float, unit: str, words: dict[str, str] | None = None) -> str:
    """A value as the panel writes it; ``words`` are those that it has for values."""
    if not math.isfinite(value) or f"{value:g}" in (words or {}):
        return (words or {}).get(f"{value:g}", "no data")
    if unit == "percentunit":
        return f"{value:.0%}"
    return f"{value:.3g}{' s' if unit == 's' else ''}"


def legend(target: dict[str, Any], metric: dict[str, str]) -> str:
    """The name of a series."""
    text = target.get("legendFormat") or ""
    if text in {"", "__auto"}:
        return ", ".join(metric.values())
    return re.sub(r"\{\{(\w+)\}\}", lambda place: metric.get(place[1], ""), text)


def draw(axes: Axes, panel: dict[str, Any], answers: list[tuple[dict[str, Any], list[Any]]], start: float) -> None:
    """One panel."""
    unit, words = styled(panel["fieldConfig"]["defaults"])
    kind = panel["type"]
    axes.set_facecolor(PANEL)
    axes.spines[:].set_visible(False)
    axes.set_title(panel["title"], loc="left", fontsize=7, color=INK, pad=3)
    series = [(legend(target, one["metric"]), one) for target, found in answers for one in found]
    if kind == "timeseries":
        for at, (name, one) in enumerate(series[:ROWS]):
            points = [(float(when) - start, float(value)) for when, value in one["values"]]
            colour = LINES[at % len(LINES)]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=0.9, label=name[:40])
        if series:
            axes.legend(fontsize=4.5, frameon=False, labelcolor=DIM, loc="best", ncols=1 + (len(series) > ROWS // 2))
        else:
            axes.text(0.5, 0.5, "no data", ha="center", color=DIM, fontsize=7, transform=axes.transAxes)
        axes.tick_params(colors=DIM, labelsize=5, length=2)
        axes.grid(color="#2c2f36", linewidth=0.4)
        axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s")
        return
    axes.set_xticks([])
    axes.set_yticks([])
    if kind == "stat":
        value = float(series[0][1]["values"][-1][1]) if series else float("nan")
        axes.text(
            0.5,
            0.45,
            number(value, unit, words),
            ha="center",
            va="center",
            fontsize=14,
            color=INK,
            transform=axes.transAxes,
        )
    elif kind == "state-timeline":
        for at, (name, one) in enumerate(series[:ROWS]):
            for when, value in one["values"]:
                axes.barh(-at, 2, left=float(when) - start, color=STATES.get(int(float(value)), DIM), height=0.7)
            axes.text(float(one["values"][0][0]) - start, -at, f" {name}", fontsize=6, va="center", color="black")
    else:
        table(axes, panel, answers)


def styled(settings: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The unit, and the words that stand for values."""
    mappings = [each["options"] for each in settings.get("mappings", []) if each["type"] == "value"]
    return settings.get("unit", "none"), {value: how["text"] for each in mappings for value, how in each.items()}


def table(axes: Axes, panel: dict[str, Any], answers: list[tuple[dict[str, Any], list[Any]]]) -> None:
    """The first query's series as rows, with the values of the others beside them."""
    organized = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
    hidden, named = organized.get("excludeByName", {}), organized.get("renameByName", {})
    styles = {each["matcher"]["options"]: each["properties"] for each in panel["fieldConfig"]["overrides"]}
    first = answers[0][1]
    keys = [key for key in KEYS if key not in hidden and any(key in one["metric"] for one in first)]
    values = [target for target, _ in answers if f"Value #{target['refId']}" not in hidden]
    heads = [*keys, *(named.get(f"Value #{target['refId']}", target["refId"]) for target in values)]
    lines = [heads]
    for row in sorted(first, key=lambda one: one["metric"].get("run", ""))[:ROWS]:
        line = [row["metric"].get(key, "") for key in keys]
        for target, found in answers:
            if target in values:
                head = named.get(f"Value #{target['refId']}", "")
                unit, words = styled({each["id"]: each["value"] for each in styles.get(head, [])})
                known = (one for one in found if one is row or fits(one["metric"], row["metric"]))
                line.append(next((number(float(one["values"][-1][1]), unit, words) for one in known), ""))
        lines.append(line)
    widths = [max(len(line[at][:LONGEST]) for line in lines) + 2 for at in range(len(heads))]
    for down, line in enumerate(lines):
        for across, text in enumerate(line):
            left, y = 0.01 + sum(widths[:across]) / sum(widths), 0.93 - down / (ROWS + 1)
            axes.text(left, y, text[:LONGEST], fontsize=5.5, color=INK if down else DIM, va="center")


def fits(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two series are about one thing: run, rule and instance, as far as both name them."""
    return all(one[key] == other[key] for key in ("run", "rule", "instance") if key in one and key in other)


def picture(client: httpx.Client, file: Path, *, start: float, end: float) -> None:
    """One dashboard."""
    board = json.loads(file.read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    high = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    figure = plt.figure(figsize=(COLUMNS * WIDE, high * HIGH), facecolor=BACK)
    for panel in board["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            figure.text(0.008, 1 - (place["y"] + 0.6) / high, panel["title"], color=INK, fontsize=8, weight="bold")
    for panel in panels:
        place, at_once = panel["gridPos"], panel["type"] in {"stat", "table"}
        box = ((place["x"] + 0.8) / COLUMNS, 1 - (place["y"] + place["h"] - 0.8) / high)
        axes = figure.add_axes((*box, (place["w"] - 1.1) / COLUMNS, (place["h"] - 1.6) / high))
        asked = partial(answer, client, start=start, end=end, at_once=at_once)
        draw(axes, panel, [(target, asked(target)) for target in panel["targets"]], start)
    image = ROOT / "docs" / "images" / f"{file.stem}.png"
    figure.savefig(image, dpi=100, facecolor=BACK)
    plt.close(figure)
    Image.open(image).convert("RGB").quantize(32, dither=Image.Dither.NONE).save(image, optimize=True)
    if image.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{image}: {image.stat().st_size} bytes, more than {MOST_BYTES}")


def main() -> None:
    """Write the runs, watch them, and draw all dashboards."""
    with tempfile.TemporaryDirectory() as name:
        folder, staged = Path(name) / "runs", Path(name) / "staged"
        for run in RUNS:
            unpack(run, staged)
            (folder / run).mkdir(parents=True)
        for lines in (ROOT / "tests" / "frameworks" / "lines" / name for name in ENGINES):
            (staged / lines.stem).mkdir()
            copied = staged / lines.stem / f"{'train' if lines.suffix == '.log' else 'metrics'}{lines.suffix}"
            copied.write_bytes(lines.read_bytes())
        with (
            watching(folder, state=Path(name) / "state") as daemon,
            shipped_prometheus(find_program("prometheus") or "", Path(name), daemon.url, interval="2s") as server,
            httpx.Client(base_url=server.url, timeout=60) as client,
        ):
            start = time.time()
            for _ in written(folder, staged):
                time.sleep(1.0)  # noqa: TID251  the jobs take their time
            end = time.time()
            for file in sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")):
                picture(client, file, start=start, end=end)


if __name__ == "__main__":
    main()
