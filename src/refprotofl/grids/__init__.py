"""Many runs that belong together: planned, done once, shared between processes, kept as small files."""
