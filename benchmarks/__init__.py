"""One program per figure, each pointed at any bootstrap address; `python -m benchmarks` runs them against a peer."""
