"""elldict beside the Cramer-Rao bound."""
