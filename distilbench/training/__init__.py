"""Stage 4: one loop that trains any method."""
