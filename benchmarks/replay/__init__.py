"""Searches replayed over recorded trials: the real searcher and stopping rules, with nothing trained."""
