"""Extracts the keys that a framework logs from its source, and prints those that no table of ours knows.

Usage: logged_keys.py NAME=FOLDER… (NAME: a folder of ``grpo_watch/frameworks``, FOLDER: the unpacked package)
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

from grpo_watch.frameworks.framework import Framework
from grpo_watch.frameworks.framework_tables import frameworks

SINK = re.compile(r"metric|(?:^|[._])logs?\b|log_dict|stats|timing|rates|reduced_|scalars", re.IGNORECASE)
"""Names that numbers are put under on their way to a logger."""
KEY = re.compile(r"[A-Za-z][\w./<>@ ()-]{1,60}")
NO_METRICS = frozenset(
    {"prompt", "completion", "completions", "train", "eval", "image", "images", "advantages", "rewards", "extra"}
    | {"mode", "rollouts", "correctness"}
)
"""Columns of tables of completions, and names of streams."""
COMPOSED = {
    "ms-swift": ("rollout_correction/", "fipo/"),
    "verl": ("rollout_corr/", "actor/", "agent_loop/", "timing_s/", "val-core/"),
    "openrlhf": ("eval/",),
    "tinker-cookbook": ("env/all/",),
}
"""What is put before the keys of inner dictionaries once they are logged; keys of one word may be of such a one."""
ANY = "<name>"
"""Stands for what a key is composed with at run time."""
PLACES = ("rlhf_trainers", "megatron/trainers")
WHERE = {
    "trl": ("trl/trainer/grpo_*.py", "trl/trainer/base_trainer.py", "trl/trainer/rloo_*.py"),
    "trl_async": ("trl/experimental/async_grpo/*.py",),
    "ms_swift": tuple(f"swift/{place}/{stem}*.py" for place in PLACES for stem in ("grpo", "rollout", "rlhf_mixin")),
    "verl": ("verl/trainer/ppo/**/*.py", "verl/workers/**/*.py", "verl/utils/metric/*.py", "verl/experimental/**/*.py"),
    "openrlhf": ("**/openrlhf/trainer/ppo*.py", "**/openrlhf/trainer/ray/*.py"),
    "prime_rl": ("**/prime_rl/**/*.py",),
    "tinker_cookbook": ("tinker_cookbook/rl/*.py", "tinker_cookbook/utils/*.py"),
}
"""Parts of each package that log a GRPO run."""


def keys_in(source: str) -> Iterator[tuple[str, int]]:
    """Keys that a module logs, with their lines: subscripts of a sink, and dictionaries that go into one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and SINK.search(ast.unparse(node.value)):
            yield from _texts([node.slice])
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(SINK.search(ast.unparse(target)) for target in targets):
                yield from _texts(node.value.keys)
        elif isinstance(node, ast.Call) and SINK.search(ast.unparse(node.func)):
            for argument in node.args:
                yield from _texts(argument.keys if isinstance(argument, ast.Dict) else [])
        elif isinstance(node, ast.Dict):
            yield from ((key, line) for key, line in _texts(node.keys) if "/" in key)


def _texts(nodes: list[ast.expr | None] | list[ast.expr]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        text = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else ANY for part in node.values)
            text = "".join(str(part) for part in parts)
        if node is not None and text is not None and KEY.fullmatch(text) and text.strip("<name>/_") != "":
            yield text, node.lineno


def unknown(key: str, table: Framework) -> bool:
    """Whether a key is neither a metric nor bookkeeping of the table, nor one of an evaluation."""
    if key in NO_METRICS or key == table.spread_key:
        return False
    plain = key.replace(ANY, "x")
    for prefix in table.strip_prefixes:
        plain = plain.removeprefix(prefix)
    composed = [prefix + plain for prefix in COMPOSED.get(table.name, ())]
    names = [plain, *(name for name in composed if "/" not in plain or "@" in plain or name in table.exact)]
    return not any(name.startswith(table.eval_prefixes) or table.find(name) is not None for name in names)


def main() -> None:
    """Print, for each package, how many keys were found and where those stand that no table knows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+", metavar="NAME=FOLDER")
    for name, _, folder in (each.partition("=") for each in parser.parse_args().packages):
        table, root = frameworks()[name.replace("_", "-")], Path(folder)
        found: dict[str, str] = {}
        for path in sorted({path for pattern in WHERE[name] for path in root.glob(pattern)}):
            for key, line in keys_in(path.read_text(encoding="utf-8")):
                found.setdefault(key, f"{path.relative_to(root)}:{line}")
        new = {key: where for key, where in found.items() if unknown(key, table)}
        print(f"{name}: {len(found)} keys logged, {len(new)} unknown")
        for key, where in sorted(new.items()):
            print(f"  {key}  {where}")


if __name__ == "__main__":
    main()
