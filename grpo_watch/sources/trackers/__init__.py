"""Reads experiment trackers: TensorBoard event files, wandb, trackio, SwanLab, MLflow."""
