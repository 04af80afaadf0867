"""Reading in commit order: a transaction is delivered once its commit marker is read, even while others are open."""
