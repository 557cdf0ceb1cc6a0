"""How far a search is, and who shows it."""
