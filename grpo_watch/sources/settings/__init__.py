"""Reads a run's configuration: files that the job leaves, and settings that it prints or logs."""
