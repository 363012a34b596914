"""The engine: records in, transitions out. Standard library only; no clock, no I/O."""
