"""Dynamic simulation: integration of a motion, its solution, its verdict, and the diagnosis of failures."""
