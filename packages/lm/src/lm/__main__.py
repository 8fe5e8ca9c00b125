"""`python -m lm` is the command lm, and so is `torchrun … -m lm`."""

from __future__ import annotations

import sys

from lm.commands.cli import main

sys.exit(main())
