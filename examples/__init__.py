"""A pipeline and a worker to copy."""
