"""What goes in. Every source becomes one `Corpus` of distinct sentences."""
