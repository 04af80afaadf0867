"""What listens and dispatches: connections, frames, limits, and the table of APIs."""
