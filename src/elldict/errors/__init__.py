"""How far atoms may be off."""
