"""What a user decides. One annotated field is the option, the setting and its check; no torch, Ray or Optuna here."""
