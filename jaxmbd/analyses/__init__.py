"""Analyses: a file or folder for each public function, named after it."""
