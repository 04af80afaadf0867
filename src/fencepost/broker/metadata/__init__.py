"""What the node knows of itself and of its topics: features, settings, placement, and where that is stored."""
