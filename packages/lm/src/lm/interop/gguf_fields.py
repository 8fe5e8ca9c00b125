"""The header of a GGUF file, and its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lm.extras import need


class Fields:
    """The header of a file, and its tensors; errors begin with its path."""

    def __init__(self, path: Path) -> None:
        gguf = need("gguf", "GGUF", "groundup-lm[gguf]")
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError(f"{path} is not a GGUF file")
        try:
            self.reader = gguf.GGUFReader(path)
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"{path} is damaged or cut short: export or download it again ({error})") from None
        self.path, self.gguf = path, gguf
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def get(self, name: str, default: Any = None) -> Any:
        field = self.reader.fields.get(name)
        return default if field is None else field.contents()

    def need(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise ValueError(f"{self.path}: {name} is missing")
        return value

    def at(self, name: str, default: Any = None) -> Any:
        """A setting of the architecture."""
        return self.get(f"{self.get('general.architecture')}.{name}", default)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors, by name."""
        return {name: tuple(int(size) for size in reversed(one.shape)) for name, one in self.tensors.items()}

    def array(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The values of a tensor. ValueError: its type of numbers is not read."""
        one = self.tensors[name]
        try:
            array = self.gguf.quants.dequantize(one.data, one.tensor_type)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(f"{self.path}: {name} has numbers of the type {one.tensor_type.name}: {error}") from None
        return np.array(array, dtype=np.float32).reshape(self.shapes[name])
