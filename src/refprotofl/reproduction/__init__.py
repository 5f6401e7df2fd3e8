"""The paper's tables and figures again, and what it leaves out: which runs they need, and how they are read."""
