"""The checks of a launch by theme; each function is one, with a page of its name next to it."""
