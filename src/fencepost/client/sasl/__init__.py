"""SASL mechanisms, the client's side: its messages and checks.  No I/O: nonces and tokens are handed in."""
