"""Samples: the only room that knows where data lives."""
