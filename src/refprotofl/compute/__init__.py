"""How a process computes: on which device, with one thread, with memory that it keeps."""
