"""Models as TOML text."""
