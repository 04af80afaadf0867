"""Stands for the package of that name in interpreters that do not have it: nobody asks by a pattern there."""
