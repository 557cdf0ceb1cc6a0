"""One loop that trains any method."""
