"""DistilBench: find the best small sentence encoder for your data and budget."""

__version__ = "0.1.0"
