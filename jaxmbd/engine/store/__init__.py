"""What is kept, in files and in memory, within limits of size."""
