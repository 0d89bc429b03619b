"""Objectives, and how they are maximised."""
