"""One checker for each promise, in a file of its own.  Each gives the broken promises as sentences, or none."""
