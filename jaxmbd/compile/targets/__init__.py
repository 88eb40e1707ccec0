"""The execution target of programs: the virtual machine in C, and the opcodes it understands."""
