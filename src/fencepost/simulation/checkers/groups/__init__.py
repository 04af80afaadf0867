"""Checkers of what members of groups and readers did and were told against what is in the log when all is over."""
