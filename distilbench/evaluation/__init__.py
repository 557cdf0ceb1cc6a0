"""Scores and costs of an encoder, from vectors to records."""
