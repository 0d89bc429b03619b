"""How fast, how exact and how robust elldict is."""
