"""Register an exported model."""
