"""Reading in commit order: each transaction when its commit marker is read, whoever else's is open."""
