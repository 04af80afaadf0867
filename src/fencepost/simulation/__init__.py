"""The world in one process, driven by a seed: twins of disk, network and clock that fail on purpose."""
