"""For all tests."""

from hypothesis import settings

# A machine that is busy elsewhere must fail no test.
settings.register_profile("asd", deadline=None)
settings.load_profile("asd")
