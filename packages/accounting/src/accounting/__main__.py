"""`python -m accounting` is the command accounting."""

from __future__ import annotations

import sys

from accounting.commands.parser import main

sys.exit(main())
