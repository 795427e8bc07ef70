"""For all tests."""

import os

from hypothesis import settings

# MindSpore's own messages are of the oldest kind. It asks for the reader in Python when it is imported.
# That is too late in a process that has tested ClusterD's messages before.
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

# A machine that is busy elsewhere must fail no test.
settings.register_profile("asd", deadline=None)
settings.load_profile("asd")
