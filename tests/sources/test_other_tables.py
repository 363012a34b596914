"""Which tables of a folder are the run's, and which another training's."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.sources.discovery.discover import Discoverer

GRPO = "Step,Training Loss,reward,kl\n" + "".join(f"{step},0.0{step},{step / 4},0.01\n" for step in range(1, 9))
SUPERVISED = "Step,Training Loss\n" + "".join(f"{step},{2 - step / 9:.4f}\n" for step in range(1, 9))


def channels(folder: Path) -> list[str]:
    (run,) = Discoverer().discover(folder)
    return [channel.name for channel in run.channels if channel.name != "run-config"]


def test_a_supervised_table_and_what_its_cell_printed_are_left_aside(tmp_path: Path) -> None:
    (tmp_path / "cell1_output.csv").write_text(SUPERVISED)
    (tmp_path / "cell1_output.txt").write_text("grpo\n{'loss': 1.0, 'grad_norm': 0.1, 'epoch': 0.1}\n")
    (tmp_path / "cell2_output.csv").write_text(GRPO)
    assert channels(tmp_path) == ["cell2_output.csv"]
    (run,) = Discoverer().discover(tmp_path)
    assert "cell1_output.csv, cell1_output.txt left aside" in run.problems[0]


def test_a_metric_in_a_table_of_its_own_stays(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text(SUPERVISED)
    (tmp_path / "reward.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    assert channels(tmp_path) == ["*"]  # one channel of them all


def test_the_same_loss_in_two_tables_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text("".join(line.rsplit(",", 2)[0] + "\n" for line in GRPO.splitlines()))
    (tmp_path / "metrics.csv").write_text(GRPO)
    assert channels(tmp_path) == ["loss.csv", "metrics.csv"]
