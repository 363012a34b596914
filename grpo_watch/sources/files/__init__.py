"""Bytes of files: tails, rotation, decompression, limits."""
