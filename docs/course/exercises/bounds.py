"""Triton's interpreter with memory that is checked: a kernel that loads or stores beyond its tensors is stopped.

A GPU does not stop it: it reads what stands there, or writes over another tensor. The interpreter would end the whole
process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from grading import Wrong
from triton.runtime import interpreter


@contextlib.contextmanager
def checked_memory() -> Iterator[list[int]]:
    """Raise Wrong where a kernel that is launched meanwhile loads or stores outside of its arguments.

    Yields a list that has, afterwards, how many numbers each store wrote.
    """
    stores: list[int] = []
    ranges: list[tuple[int, int]] = []
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, arguments = builder.create_masked_load, builder.create_masked_store, executor._init_args_hst

    def note(self: Any, *values: Any) -> Any:
        on_host = arguments(self, *values)
        tensors = [value for part in (on_host[0], on_host[1].values()) for value in part if hasattr(value, "data_ptr")]
        ranges[:] = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]
        return on_host

    def check(what: str, places: Any, mask: Any, size: int) -> None:
        places = np.broadcast_to(places.data, mask.data.shape)[mask.data.astype(bool)]
        inside = np.zeros(places.shape, dtype=bool)
        for start, end in ranges:
            inside |= (places >= start) & (places + np.uint64(size) <= end)
        if not inside.all():
            raise Wrong(
                f"{what} {int((~inside).sum())} numbers outside of its tensors. Where a tile reaches beyond the end, "
                f"give {'tl.load' if what.endswith('loads') else 'tl.store'} a mask."
            )

    def checked_load(self: Any, ptrs: Any, mask: Any, *others: Any) -> Any:
        check("The kernel loads", ptrs, mask, np.dtype(interpreter._get_np_dtype(ptrs.get_element_ty())).itemsize)
        return load(self, ptrs, mask, *others)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *others: Any) -> Any:
        check("The kernel stores", ptrs, mask, np.dtype(interpreter._get_np_dtype(ptrs.get_element_ty())).itemsize)
        stores.append(int(mask.data.sum()))
        return store(self, ptrs, value, mask, *others)

    with (
        mock.patch.object(builder, "create_masked_load", checked_load),
        mock.patch.object(builder, "create_masked_store", checked_store),
        mock.patch.object(executor, "_init_args_hst", note),
    ):
        yield stores
