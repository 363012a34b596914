"""Child processes whose death the parent survives."""
