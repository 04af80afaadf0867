"""What is raised for an option that cannot be used."""


class BadOption(ValueError):
    """An option that cannot be used; the message says which, and what to do."""
