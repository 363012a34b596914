"""The worked example of docs/adding-a-framework.md does what the text says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.records import ChannelKind, RawRow
from grpo_watch.frameworks import resolver
from grpo_watch.frameworks.framework_tables import frameworks, read_framework

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "adding-a-framework.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path

from grpo_watch import frameworks

frameworks.__path__.append(sys.argv[1])

from grpo_watch.engine.records import CompletionSummary, RawRow
from grpo_watch.frameworks.resolver import Resolver
from grpo_watch.sources.completions.rollout_dumps import CompletionDumpsSource
from grpo_watch.sources.discovery.discover import discover
from grpo_watch.sources.rows.jsonl import JsonlSource

job = Path(sys.argv[2])
(run,) = discover(job)
rows = [item for item in JsonlSource("log", job / "metrics.jsonl", [job]).poll(None) if isinstance(item, RawRow)]
tiny = Resolver()
resolved = [tiny.resolve(row).values for row in rows]
dumps = CompletionDumpsSource("dumps", job / "sampled", [job], lambda: 2)
batches = [item for item in [*dumps.poll(None), *dumps.finish()] if isinstance(item, CompletionSummary)]
print(json.dumps({
    "channels": {channel.name: channel.what.value for channel in run.channels},
    "framework": run.framework,
    "recognised": tiny.framework,
    "unknown": tiny.unknown_keys,
    "values": resolved[-1],
    "groups": [[batch.step, group.size, group.unique] for batch in batches for group in batch.groups],
}))
"""


def test_the_folder_is_all_that_is_needed(tmp_path: Path) -> None:
    """The example's files, put beside the shipped folders, make a run of Tiny-GRPO known: its log, rows and dumps."""
    folder, job = tmp_path / "frameworks" / "tiny_grpo", tmp_path / "job"
    for each in (folder, job / "sampled"):
        each.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""tiny-grpo."""\n')
    (folder / "keys.yaml").write_text(block("yaml"))
    (folder / "dumps.py").write_text(block("python"))
    line = json.loads(block("json"))
    (job / "metrics.jsonl").write_text("".join(json.dumps({**line, "step": step}) + "\n" for step in (11, 12)))
    bar = " 12%|#2        | 12/100 [00:04<00:29,  3.05it/s]"
    (job / "train.log").write_text(
        f"INFO tiny_grpo.trainer ***** Running training *****\ngrpo {bar}\n{{'reward': 0.5}}\n"
    )
    sampled = "".join(json.dumps({"q": "2 + 2?", "a": answer, "r": 0.5}) + "\n" for answer in ("4", "five"))
    (job / "sampled" / "sampled_12.jsonl").write_text(sampled)
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "frameworks"), str(job)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["channels"]["sampled/*.jsonl"] == "completion dumps"
    assert found["framework"] == found["recognised"] == "tiny-grpo"
    assert found["unknown"] == []
    assert found["values"] == {
        "loss": 0.002,
        "learning_rate": 1e-06,
        "reward_mean": 0.5,
        "kl_reference": 0.0004,
        "kl_policy_update": 0.0,
    }
    assert found["groups"] == [[12, 2, 2]]


def test_a_key_counts_only_beside_its_companion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 0 that is written without a reference model is no KL to one."""
    table = read_framework(block("yaml"))
    everyone = {**frameworks(), table.name: table}
    monkeypatch.setattr(resolver, "frameworks", lambda: everyone)
    row = resolver.Resolver("tiny-grpo").resolve(RawRow("c", ChannelKind.JSONL, 1, {"pg": 0.1, "kl_ref": 0.0}))
    assert row.values == {"loss": 0.1}


def test_every_data_file_says_what_its_channels_show() -> None:
    """The documentation's table is made of it; a key named there is one of the file."""
    files = sorted((ROOT / "grpo_watch" / "frameworks").glob("*/keys.yaml"))
    documents = {each["framework"]: each["channels"] for each in (yaml.safe_load(file.read_text()) for file in files)}
    assert documents.keys() == frameworks().keys()
    wrong: list[str] = []
    for name, channels in documents.items():
        wrong += [] if channels else [f"{name}: no channels"]
        for channel, entry in channels.items():
            wrong += [f"{name}: {channel}: {key}" for key in entry.keys() - {"only", "lacks", "gives", "note", "none"}]
            wrong += [f"{name}: {metric} is no metric" for metric in entry.get("gives", ()) if metric not in METRICS]
            for key in (*entry.get("only", ()), *entry.get("lacks", ())):
                found = frameworks()[name].find(key)
                wrong += [] if found and found[1].metric else [f"{name}: {key} is no metric"]
    assert wrong == []
