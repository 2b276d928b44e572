"""`dataclass` of the standard library, made in a quarter of its time: a short command makes a hundred of them.

    dataclasses.dataclass    writes and compiles __init__, __repr__, __eq__, __hash__, __setattr__, __delattr__ of each
    here                     compiles __init__; the others are functions that all classes share

Classes are used as those of the standard library are: repr, ==, hash, pickles, match, dataclasses.fields, replace and
asdict. What these functions ask of a class comes from a twin that the standard library makes, when one of them asks.
tests/test_records.py holds every class of the package against such a twin. To look again: when the lowest Python is
3.13, which compiles all methods of a class at once.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from copy import copy
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_MISSING = dataclasses.MISSING
_OWN = "__record__"  # of a class: its _Record


class _Record:
    """How a class was made: its fields by name, those of its bases first; and the arguments of `dataclass`."""

    def __init__(self, fields: dict[str, tuple[str, dataclasses.Field[Any]]], arguments: dict[str, Any]) -> None:
        self.fields, self.arguments = fields, arguments
        compared = [name for name, (_, one) in fields.items() if one.compare]
        self.shown = [name for name, (_, one) in fields.items() if one.repr]
        self.compared = _values_of(compared)
        self.hashed = _values_of([name for name in compared if fields[name][1].hash is not False])
        self._twin: type | None = None

    def twin(self, name: str) -> type:
        """The class that the standard library makes of the same fields."""
        if self._twin is None:
            body = {one: copy(found) for one, (_, found) in self.fields.items()}
            hints = {one: hint for one, (hint, _) in self.fields.items()}
            arguments = {**self.arguments, "slots": False}
            self._twin = dataclasses.dataclass(**arguments)(type(name, (), {"__annotations__": hints, **body}))
        return self._twin


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """A function that gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda one: (getattr(one, names[0]),)) if names else (lambda one: ())


class _OfTwin:
    """An attribute of a class, of which its twin has the value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, one: Any, kind: type) -> Any:
        made = next(base for base in kind.__mro__ if _OWN in base.__dict__)
        return getattr(made.__dict__[_OWN].twin(made.__name__), self._name)


# --- methods that all classes share ---------------------------------------------------------------


@recursive_repr("...")
def _repr(self: Any) -> str:
    values = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.__record__.shown])
    return f"{type(self).__qualname__}({values})"


def _equals(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = self.__record__.compared
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__record__.hashed(self))


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _OWN in type(self).__dict__ or name in self.__record__.fields:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _OWN in type(self).__dict__ or name in self.__record__.fields:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__record__.fields]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__record__.fields, state, strict=True):
        object.__setattr__(self, name, value)


# --- making a class -------------------------------------------------------------------------------


class _Factory:
    """The default of a parameter whose value a function makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _fields_of(cls: type, kw_only: bool) -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    """Annotation and field by name, those of the bases first; defaults become attributes of the class, or leave it."""
    fields: dict[str, tuple[str, dataclasses.Field[Any]]] = {}
    for base in cls.__mro__[-1:0:-1]:
        if (made := base.__dict__.get(_OWN)) is not None:
            fields.update(made.fields)
    for name, hint in get_annotations(cls).items():
        if hint.startswith("ClassVar"):
            continue
        default = cls.__dict__.get(name, _MISSING)
        if not isinstance(default, dataclasses.Field):
            default = dataclasses.field(default=default)
        elif default.default is not _MISSING:
            setattr(cls, name, default.default)
        else:
            delattr(cls, name)
        if default.kw_only is _MISSING:
            default.kw_only = kw_only
        fields[name] = hint, default
    return fields


def _init(cls: type, fields: dict[str, tuple[str, dataclasses.Field[Any]]], frozen: bool) -> Callable[..., None]:
    values: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    usual: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for name, (_, one) in fields.items():
        value = name
        if one.default_factory is not _MISSING:
            values[f"_make_{name}"] = one.default_factory
            value = f"_make_{name}() if {name} is _FACTORY else {name}" if one.init else f"_make_{name}()"
        if one.init:
            default = ""
            if one.default_factory is not _MISSING:
                default = "=_FACTORY"
            elif one.default is not _MISSING:
                values[f"_default_{name}"] = one.default
                default = f"=_default_{name}"
            (by_name if one.kw_only else usual).append(name + default)
        elif one.default_factory is _MISSING:
            continue
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*usual, *(["*", *by_name] if by_name else [])])
    text = f"def _make({', '.join(values)}):\n def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"])
    made: dict[str, Any] = {}
    exec(f"{text}\n return __init__", sys.modules[cls.__module__].__dict__, made)
    init: Callable[..., None] = made["_make"](**values)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{name: hint for name, (hint, one) in fields.items() if one.init}, "return": None}
    return init


def _made(cls: type, repr: bool, frozen: bool, slots: bool, kw_only: bool) -> type:
    fields = _fields_of(cls, kw_only)
    arguments = {"repr": repr, "frozen": frozen, "slots": slots, "kw_only": kw_only}
    own: dict[str, Any] = {_OWN: _Record(fields, arguments)}
    own |= {name: _OfTwin(name) for name in ("__dataclass_fields__", "__dataclass_params__")}
    by_position = tuple(name for name, (_, one) in fields.items() if one.init and not one.kw_only)
    methods: dict[str, Any] = {"__init__": _init(cls, fields, frozen), "__match_args__": by_position, "__eq__": _equals}
    if repr:
        methods["__repr__"] = _repr
    if cls.__dict__.get("__hash__") is None:  # Python makes it None where a class has an __eq__ of its own
        own["__hash__"] = _hash if frozen else None
    if frozen:
        own |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    body = {**methods, **cls.__dict__, **own}
    if not slots:
        for name in {**methods, **own}:
            setattr(cls, name, body[name])
        return cls
    had = {name for base in cls.__mro__[1:] for name in _slots(base)}
    for name in (*fields, "__dict__", "__weakref__"):
        body.pop(name, None)
    body["__slots__"] = tuple(name for name in fields if name not in had)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _slots(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, repr=True, frozen=False, slots=False, kw_only=False):
        """As the standard library has it, of modules with `from __future__ import annotations`."""
        if cls is not None:
            return _made(cls, repr, frozen, slots, kw_only)
        return lambda own: _made(own, repr, frozen, slots, kw_only)
