"""Plots and pages about results: compute, draw, render. Needs the extra ``demo``."""
