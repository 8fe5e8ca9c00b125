"""`python -m bpe` is the command bpe."""

from __future__ import annotations

import sys

from bpe.commands.main import main

sys.exit(main())
