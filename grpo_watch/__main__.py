"""Runs the command line for ``python -m grpo_watch``."""

from grpo_watch.cli.main import main

if __name__ == "__main__":
    main()
