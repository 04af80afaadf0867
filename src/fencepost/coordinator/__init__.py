"""Coordinators: who may write what, decided in one place per transactional id and per consumer group."""
