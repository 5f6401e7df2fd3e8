"""The Python API behind `import refprotofl as rp`: functions that return results as objects."""
