"""What a user decides, with its types, limits and defaults."""
