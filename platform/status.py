"""`python -m platform.status`, from the repository root: the same as `distilbench status`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["status", *sys.argv[1:]])
