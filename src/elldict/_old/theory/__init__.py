"""Error bars in closed form; what users can ask is `elldict.theory`."""
