"""Search spaces, the Optuna-backed Tune searcher, the trial."""
