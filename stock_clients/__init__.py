"""How stock clients come out of a transaction that the coordinator timed out, observed: `python -m stock_clients`."""
