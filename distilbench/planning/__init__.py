"""What a sweep will take before it is started: hours and dollars from measured rates.

`rates` (measured by `probe`, or from a finished run by `from_run`), `machines` (the clusters), `work` (what the sweep has to
do), `steps`, `schedule` and `search.fates` (the search), `model` (the stages' times), `table` (what is printed).
"""
