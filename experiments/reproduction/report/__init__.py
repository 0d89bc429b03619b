"""The page that is made of sections."""
