"""`python -m platform.export`, from the repository root: the same as `distilbench export`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["export", *sys.argv[1:]])
