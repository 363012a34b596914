"""``grpo-watch push clean``: removes from Pushgateways what a watcher that ended left there."""

# ruff: noqa: PLC0415  commands import their module when they run

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grpo_watch.cli.options import Config, LogFormat, Logs, NoColor, StateDir, Verbose, begin, example, group
from grpo_watch.errors import UsageError

OK, FAILED = 0, 1

app = group("Manage metrics pushed to Pushgateways.")


@app.command(epilog=example("push clean my-run --config grpo-watch.yaml"))
def clean(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Paths that were watched, if no state_dir is set.")
    ] = None,
    config: Config = None,
    state_dir: StateDir = None,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    log_format: Logs = LogFormat.LOGFMT,
) -> int:
    """Remove the groups that `run` left in its Pushgateways. Use the same PATH and settings as for `run`."""
    begin(verbose, no_color, log_format)
    return clean_command(paths or [], config, state_dir)


def clean_command(paths: list[str], config: Path | None, state_dir: Path | None) -> int:
    """Remove the groups; returns 1 when one can't be removed.

    Raises:
        UsageError: a setting can't be used, there is no Pushgateway in them, or it is not known what was watched.
    """
    import os
    import socket
    import time

    from grpo_watch.cli.live_text import show
    from grpo_watch.cli.wandb_setup import watched_paths
    from grpo_watch.config.settings import default_state_dir, load_settings
    from grpo_watch.notify.receivers.pushgateway import pushed_groups, remove

    settings = load_settings({"state_dir": state_dir}, config=config).settings
    folder = settings.state_dir
    groups = pushed_groups(settings.sinks)
    if not groups:
        raise UsageError("no pushgateway sink configured")
    if folder is None and not all(pushed.instance for pushed in groups):
        folder = default_state_dir(watched_paths(paths, settings), socket.gethostname(), os.environ)
    code = OK
    for pushed in groups:
        instance = pushed.instance or (folder.name if folder else "")
        outcome = remove(pushed.url(instance), pushed.access, time.time)
        done = outcome.status is not None and outcome.result.value == "delivered"
        show(f"{pushed.name}: {f'removed {instance}' if done else f'could not remove {instance}: {outcome.detail}'}")
        code = code if done else FAILED
    return code
