"""Where samples come from, and what is done with them before atoms are sought."""
