"""The checks of a launch by theme; each function is one, its page lies here under its name."""
