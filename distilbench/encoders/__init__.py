"""Transformer encoders: loading, tokens, layers, students."""
