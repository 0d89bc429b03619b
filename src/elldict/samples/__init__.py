"""Access to samples, and their preprocessing before the search for atoms."""
