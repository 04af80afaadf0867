"""The error of an option that is not known or cannot be used."""


class BadOption(ValueError):
    """An option that cannot be used; the message says which, and what to do."""
