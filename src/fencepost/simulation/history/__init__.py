"""What happened in a run, as records that a person can follow: written down, saved, read again, and shown as a page."""
