"""Bytes to messages and back: requests and responses, record batches, stored records, error codes.  No I/O."""
