"""`python -m platform.sweep`, from the repository root: the same as `distilbench sweep`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["sweep", *sys.argv[1:]])
