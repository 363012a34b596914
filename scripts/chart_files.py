"""The Helm chart's copies of rules and dashboards: a chart can't name files outside of its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

CHART = Path("deploy/helm/grpo-watch/files")
COPIED = {
    "rules": ("rules/prometheus", ".rules.yaml"),
    "dashboards": ("deploy/grafana/dashboards", ".json"),
}
"""Folder of the chart → folder of the repository, and how its files end."""


def documents(root: Path, generated: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Every copy with the text it should have; what is generated counts, not what of it was last written."""
    for folder, (source, ending) in COPIED.items():
        made = {path for path in generated if path.parent == root / source}
        for path in sorted(made | set((root / source).glob(f"*{ending}"))):
            yield root / CHART / folder / path.name, generated.get(path) or path.read_text()
