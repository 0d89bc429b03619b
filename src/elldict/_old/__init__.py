"""The package as it was before it was written again. Public names come from here until the new one has them."""
