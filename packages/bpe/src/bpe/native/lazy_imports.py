"""NumPy and regex, imported when they are first asked for something: training needs neither, and they take 20 MB."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as numpy
    import regex as regex
else:

    class _Later:
        """A module that is imported when it is first asked for a name."""

        def __init__(self, name: str) -> None:
            self.__name__ = name

        def __getattr__(self, attribute: str) -> Any:
            module = importlib.import_module(self.__name__)
            vars(self).update(vars(module))
            return getattr(module, attribute)

    numpy, regex = _Later("numpy"), _Later("regex")
