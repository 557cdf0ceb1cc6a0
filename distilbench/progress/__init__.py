"""The state of a running sweep, and what shows it."""
