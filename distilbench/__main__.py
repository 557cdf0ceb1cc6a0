"""`python -m distilbench`."""

from distilbench.cli import app

if __name__ == "__main__":
    app()
