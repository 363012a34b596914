"""Readers of everything that a training run is launched with."""
