"""What runs programs: the virtual machine in C."""
