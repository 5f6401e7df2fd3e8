"""What hostile clients do, in simulation: who they are, and how their data or answers are altered."""
