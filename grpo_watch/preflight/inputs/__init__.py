"""Reads all inputs of a launch: command lines, scripts, configurations, run folders."""
