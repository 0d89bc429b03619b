"""Campaigns: thousands of problems, damaged files and faults, counted; each with a number to repeat it by."""
