"""`python -m platform.best`, from the repository root: the same as `distilbench best`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["best", *sys.argv[1:]])
