"""`python -m platform.evaluate`, from the repository root: the same as `distilbench evaluate`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["evaluate", *sys.argv[1:]])
