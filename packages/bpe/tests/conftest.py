"""What every test of this package shares."""

from hypothesis import settings

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")
