"""Turns ``python -m grpo_watch`` into the command line."""

from grpo_watch.cli.main import main

if __name__ == "__main__":
    main()
