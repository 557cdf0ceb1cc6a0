"""`python -m platform.index`, from the repository root: the same as `distilbench index`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["index", *sys.argv[1:]])
