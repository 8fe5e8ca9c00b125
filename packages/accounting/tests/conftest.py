"""Lets the tests import their strategies, whatever folder pytest was started in."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# No test holds a clock: on a busy machine anything may take long.
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")
