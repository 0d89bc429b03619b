"""Campaigns: hundreds of difficult data sets, damaged files and injected faults."""
