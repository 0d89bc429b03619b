"""Pages and pictures about results: compute, draw, render. Needs the extra ``elldict[demo]``."""
