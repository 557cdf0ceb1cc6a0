"""`python -m platform.efficiency`, from the repository root: the same as `distilbench efficiency`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["efficiency", *sys.argv[1:]])
