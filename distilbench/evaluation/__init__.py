"""Stage 6: scores and costs of an encoder, from vectors to records."""
