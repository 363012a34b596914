"""From transitions to messages that arrive: made, routed, queued, sent, tried again."""
