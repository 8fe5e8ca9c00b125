"""What has to be settled before torch is loaded; imported first, which its name sees to."""

import os
import time

BEGAN = time.monotonic()  # loading torch takes a part of the demo's time

# Torch's threads spin for work before they sleep. When they spin for long, as they do unasked, anything else that runs
# on the machine makes a training step ten times slower; when they never do, a step takes half as long again.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
