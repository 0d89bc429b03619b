"""The report: numbers in words, pictures, and the page."""
