"""Stage 1: what goes in. Every source becomes one `Corpus` of distinct sentences."""
