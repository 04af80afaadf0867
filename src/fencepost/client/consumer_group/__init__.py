"""Membership in a group of the new protocol (KIP-848)."""
