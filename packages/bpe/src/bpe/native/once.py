"""Thread-safe `cache` and `cached_property`: one thread computes a value, the others wait for it.

With functools' own, sixteen threads that begin together would make the tables of a vocabulary sixteen times.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

Result = TypeVar("Result")


class _ForkSafeLock:
    """A lock that a forked process has anew: the thread that held it is not in there to release it."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.RLock()


if TYPE_CHECKING:
    made_once = functools.cache
    made_once_property = functools.cached_property
else:

    def made_once(function: Callable[..., Result]) -> Callable[..., Result]:
        """lru_cache(maxsize=256), but `function` is called once for the same arguments however many threads ask."""
        guard, cached = _ForkSafeLock(), functools.lru_cache(maxsize=256)(function)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Result:
            with guard.lock:
                return cached(*arguments, **named)

        call.cache_clear = cached.cache_clear
        return call

    class made_once_property:
        """functools.cached_property, but made once however many threads ask."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function, self._guard = function, _ForkSafeLock()
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type[Any], name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            attributes = vars(instance)  # where Python looks first, once it is there
            with self._guard.lock:
                if self._name not in attributes:
                    attributes[self._name] = self._function(instance)
                return attributes[self._name]
