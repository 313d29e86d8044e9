"""What a run says of itself: events, timers, memory, heartbeat, failures."""
