"""Analyses of mechanisms. Each public function has a file or a folder that is named after it."""
