"""Kill what works, and compare what it ends with."""
