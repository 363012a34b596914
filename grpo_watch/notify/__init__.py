"""Turns transitions into notifications and delivers them: routing, queues, sending, retries."""
