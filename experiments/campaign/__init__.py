"""Campaigns: many data sets, files and faults at once, to find where elldict does not do what it says."""
