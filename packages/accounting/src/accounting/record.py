"""Frozen records: what `@dataclass(frozen=True)` makes, without the time that importing dataclasses takes.

That import, and the code it generates for every class, would be half of what a command takes to start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform

    AnyRecord = TypeVar("AnyRecord", bound="Record")
else:

    def dataclass_transform(**_):
        """Tells type checkers that subclasses have a constructor of their fields; it does nothing else."""
        return lambda record: record


class _DataclassFields:
    """`__dataclass_fields__`, made when it is asked for: dataclasses.replace, fields and asdict take a record."""

    def __get__(self, _: object, record: type[Record]) -> dict[str, Any]:
        from dataclasses import field, make_dataclass  # here, because this package does not need it

        defaults = {name: field(default=value) for name, value in record._defaults.items()}
        made = make_dataclass(
            record.__name__, [(name, object, defaults.get(name, field())) for name in record._fields], kw_only=True
        )
        record.__dataclass_fields__ = vars(made)["__dataclass_fields__"]
        return record.__dataclass_fields__


@dataclass_transform(frozen_default=True)
class Record:
    """A class whose annotations are its fields; those after `_: KW_ONLY` are given by name.

    A subclass has a constructor of its fields, which calls `__post_init__`, equality, a hash and a repr. It is frozen.

    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(3) == Point(3, 0), replace(Point(3), y=4)
    (Point(x=3, y=0), True, Point(x=3, y=4))
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, object]] = {}
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        own = list(cls.__annotations__)
        cls._fields += tuple(name for name in own if name != "_")
        cls._defaults = cls._defaults | {name: vars(cls)[name] for name in own if name in vars(cls)}
        # def __init__(self, x, y=_defaults['y']): self.__dict__.update(x=x, y=y); self.__post_init__()
        inherited = [name for name in cls._fields if name not in own]
        takes = [
            "*" if name == "_" else f"{name}=_defaults[{name!r}]" if name in cls._defaults else name for name in own
        ]
        code = (
            f"def __init__(self, {', '.join([*inherited, *takes])}):\n"
            f"    self.__dict__.update({', '.join(f'{name}={name}' for name in cls._fields)})\n"
            f"    self.__post_init__()\n"
        )
        cls.__dataclass_fields__ = _DataclassFields()  # type: ignore[assignment]
        made: dict[str, Any] = {}
        exec(code, {"_defaults": cls._defaults}, made)
        made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = made["__init__"]  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Checks the fields, in a subclass that has something to check."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: make another one with replace({name}=…)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = zip(self._fields, self._values(), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __replace__(self: AnyRecord, /, **changes: Any) -> AnyRecord:
        """For copy.replace of Python 3.13."""
        return type(self)(**{name: self.__dict__[name] for name in self._fields} | changes)

    def _values(self) -> tuple[object, ...]:
        return tuple(self.__dict__[name] for name in self._fields)


def fields(record: type[Record]) -> tuple[str, ...]:
    """The names of its fields, in the order of the constructor."""
    return record._fields


def replace(record: AnyRecord, **changes: Any) -> AnyRecord:
    """A record like this one with other values of the named fields, checked as it is."""
    return record.__replace__(**changes)
