"""`python -m platform.prepare`, from the repository root: the same as `distilbench prepare`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["prepare", *sys.argv[1:]])
