"""Reads runs on a wandb server through wandb's own client in a separate process."""
