"""A folder that is swapped for a link while it is watched: what lies behind it is not read, nothing is repeated."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import AlertState
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import rule_set
from tests.support.high import RULE, RULES, Run
from tests.support.live import Live


def live(folder: Path, path: Path, now: float) -> Live:
    """A daemon over ``path``."""
    (folder / "high.yaml").write_text(RULES)
    rules = rule_set(load_rules([folder / "high.yaml"]), catalogue())
    return Live(path, folder / "state", now=now, rules=lambda: rules)


def states(one: Live, run: str) -> list[AlertState]:
    return [each.to_state for each in one.transitions(run) if each.rule == RULE]


def test_a_link_in_place_of_a_runs_folder_is_not_followed(tmp_path: Path) -> None:
    run, _ = Run(tmp_path, "victim"), Run(tmp_path, "other")
    outside = Run(tmp_path / "outside", "secret")
    outside.write(*[0.2] * 48)
    one = live(tmp_path, tmp_path / "runs", run.path.stat().st_mtime)
    one.settle()
    run.write(0.9)
    one.settle()
    run.path.rename(tmp_path / "kept")
    run.path.symlink_to(outside.path)
    one.now += 1.1
    one.daemon.turn(one.folders())  # before discovery looks
    assert one.run("victim").step == 2
    one.settle()
    assert one.run("victim").step == 2
    run.path.unlink()
    (tmp_path / "kept").rename(run.path)
    run.write(0.2)
    one.settle()
    assert one.run("victim").step == 3
    assert states(one, "victim") == [AlertState.FIRING, AlertState.RESOLVED]
    one.close()


def test_a_watched_link_that_leads_elsewhere_is_followed(tmp_path: Path) -> None:
    """The watched path is the user's: what it leads to is read, also once that is another folder."""
    first, second = Run(tmp_path / "a", "run"), Run(tmp_path / "b", "run")
    watched = tmp_path / "watched"
    watched.symlink_to(tmp_path / "a" / "runs")
    one = live(tmp_path, watched, first.path.stat().st_mtime)
    one.settle()
    assert one.run("run").step == 1
    watched.unlink()
    watched.symlink_to(tmp_path / "b" / "runs")
    second.write(0.2, 0.2, 0.2)
    one.settle()
    one.settle()
    assert one.run("run").step == 4
    one.close()
