"""`python -m platform.compare`, from the repository root: the same as `distilbench compare`."""

import sys

if __name__ == "__main__":
    from distilbench.cli import app

    app(["compare", *sys.argv[1:]])
