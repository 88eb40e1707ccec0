"""Entry point of `python -m jaxmbd`."""

from jaxmbd.cli import app

app()
