"""The check of model files against their published schema."""

import json
import tomllib
from functools import cache
from typing import Any

import jsonschema

from jaxmbd.io.model_file.schema import PATH


@cache
def validator() -> Any:
    """What checks a tree against the file that the package has."""
    schema = json.loads(PATH.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check_schema(text: str) -> None:
    """Raise unless a TOML text keeps to the schema."""
    validator().validate(tomllib.loads(text))
