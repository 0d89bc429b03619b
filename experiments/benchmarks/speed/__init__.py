"""elldict beside its peers."""
