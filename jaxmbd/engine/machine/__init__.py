"""What runs programs: the virtual machine in C, and straight-line code."""
