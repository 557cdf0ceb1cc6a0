"""The settings of every command. One annotated field is the option, the setting and its check; no torch, Ray or Optuna."""
