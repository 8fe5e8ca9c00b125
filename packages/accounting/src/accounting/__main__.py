"""`python -m accounting` is the command accounting."""

from __future__ import annotations

import sys

from accounting.cli import main

sys.exit(main())
