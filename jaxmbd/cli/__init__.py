"""The `jaxmbd` command."""

from jaxmbd.cli._app import app as app
