"""A real recorded run with a real fault, and the replayer that writes it again at an accelerated pace."""
