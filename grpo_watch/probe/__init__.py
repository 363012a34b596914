"""Reads weights inside a training job and appends checksums to a JSONL file; standard library, and the job's torch."""
