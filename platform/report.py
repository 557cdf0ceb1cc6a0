"""`python -m platform.report`, from the repository root: the same as `distilbench report`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["report", *sys.argv[1:]])
