"""Pipelines to copy."""
