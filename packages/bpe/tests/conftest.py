"""What every test of this package shares."""

import signal

from hypothesis import settings

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
