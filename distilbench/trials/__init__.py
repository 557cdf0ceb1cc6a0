"""One training: its budget, its rungs, its scores."""
