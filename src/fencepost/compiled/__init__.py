"""Code that may have been compiled: where it lies, and whether it is used."""
