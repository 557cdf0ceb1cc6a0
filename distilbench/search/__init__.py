"""Stage 5: search spaces, the Optuna-backed Tune searcher, the trial, the sweep."""
