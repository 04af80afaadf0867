"""What the leader of a partition does beyond its log: verification, markers, record sets, fetch sessions."""
