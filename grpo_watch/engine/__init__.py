"""The engine: takes records and returns transitions. Standard library only; no clock, no I/O."""
