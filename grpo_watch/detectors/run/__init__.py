"""The job itself: crashed, stalled, slowed down, resumed wrongly, or configured so that it can't work."""
