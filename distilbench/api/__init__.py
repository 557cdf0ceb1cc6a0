"""Python: the commands as functions with the same settings, and a run as data frames, students and figures."""
