"""`python -m platform.methods`, from the repository root: the same as `distilbench methods`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["methods", *sys.argv[1:]])
