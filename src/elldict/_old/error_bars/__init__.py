"""Error bars: how far atoms may be off, and why."""
