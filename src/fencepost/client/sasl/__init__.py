"""SASL mechanisms, the client's side: what is said and what is accepted.  No I/O: chance and tokens are handed in."""
