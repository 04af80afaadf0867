"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as pure functions beside tables."""
