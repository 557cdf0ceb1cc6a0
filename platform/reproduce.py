"""`python -m platform.reproduce`, from the repository root: the same as `distilbench reproduce`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["reproduce", *sys.argv[1:]])
