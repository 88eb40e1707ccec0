"""Analyses of mechanisms: a folder for each subject, and in it a file that is named after each public function."""
