"""Keeping to the time: the demo's schedule is shortened when the machine slows down."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from tqdm import tqdm

from lm.config import TrainConfig

DECAY = 0.2  # of the steps, over which the learning rate falls to 0; before them it stays
FEWEST_STEPS = 20
MARGIN = 0.05  # of the training time, for what cannot be foreseen
WINDOW = 0.08  # of the training time: the recent steps
FEWEST_RECENT = 5  # of them, for a median that one slow step does not move


class Watch:
    """A listener of lm.train that stops a run which will end late, and then has the schedule that still fits.

    A run is late if both the mean since its first step and the median of the recent steps say so: a pause of seconds
    moves the mean and not the median, and one slow stretch moves the median and not the mean. While the learning rate
    has not begun to fall, fewer steps change nothing of the steps so far; after that the schedule stays.

    Args:
        seconds: The time for all of the training.
        config: The training, by a linear schedule with decay_steps.
        clock: Seconds, as time.monotonic.

    Attributes:
        shorter: steps and decay_steps of the shortened schedule; None as long as the run is in time.
        pace: Seconds of a step when it was shortened.
    """

    def __init__(self, seconds: float, config: TrainConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.config, self.clock = seconds, config, clock
        self.first: tuple[int, float] | None = None  # step and time
        self.last = (0, 0.0)
        self.before = 0.0  # seconds of training up to the first step seen here
        self.recent: deque[tuple[float, float]] = deque()  # time, seconds of a step
        self.shorter: dict[str, int] | None = None
        self.pace = math.nan

    def __call__(self, line: dict[str, Any]) -> bool:
        """Take in a line of metrics; True if the run is to stop for a shorter schedule."""
        if "val_loss" in line:
            bits = line.get("val_bits_per_byte", math.nan)
            tqdm.write(
                f"step {line['step']:>6,}: held-out loss {line['val_loss']:.3f}, {bits:.3f} bits/byte", file=sys.stderr
            )
            return False
        step, now = line["step"], self.clock()
        if self.first is None:
            self.first, self.last, self.before = (step, now), (step, now), line["seconds"]
            return False
        self.recent.append((now, (now - self.last[1]) / (step - self.last[0])))
        self.last = (step, now)
        window = WINDOW * self.seconds
        while len(self.recent) > FEWEST_RECENT and now - self.recent[0][0] > window:
            self.recent.popleft()
        elapsed = now - self.first[1]
        if (
            elapsed < window
            or len(self.recent) < FEWEST_RECENT
            or step > self.config.steps - (self.config.decay_steps or 0)
        ):
            return False
        recent, mean = median(pace for _, pace in self.recent), elapsed / (step - self.first[0])
        time_left = self.seconds - self.before - elapsed
        if min(recent, mean) * (self.config.steps - step) <= time_left:
            return False
        self.pace = max(recent, mean)
        fit = max(FEWEST_STEPS, int((1 - MARGIN) * time_left / self.pace))
        constant_from = max(step, self.config.warmup_steps)
        steps = max(step + fit, constant_from + FEWEST_STEPS)
        if steps < self.config.steps:
            self.shorter = {"steps": steps, "decay_steps": min(round(DECAY * steps), steps - constant_from)}
        return self.shorter is not None
