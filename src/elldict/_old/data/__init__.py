"""Where samples are stored, and one pass over them."""
