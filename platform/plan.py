"""`python -m platform.plan`, from the repository root: the same as `distilbench plan`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["plan", *sys.argv[1:]])
