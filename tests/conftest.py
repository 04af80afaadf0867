"""The same examples in every run, however slow the machine is; tests/soak looks at others every time."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
