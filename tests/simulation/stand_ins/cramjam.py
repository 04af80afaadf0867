"""Stands for the package of that name in interpreters that do not have it: nothing is compressed there."""
