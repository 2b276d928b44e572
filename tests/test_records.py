"""Classes of parquet_bloom.records are those that the standard library would make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import pytest

from parquet_bloom import records

# --- every class of the package -------------------------------------------------------------------

FACTS = """
import dataclasses, importlib, inspect, json, pkgutil, re, sys, warnings
warnings.simplefilter("ignore")
import parquet_bloom.records
if sys.argv[1] == "standard":
    parquet_bloom.records.dataclass = dataclasses.dataclass
found = {}
for module in pkgutil.walk_packages(parquet_bloom.__path__, "parquet_bloom."):
    if "_thrift" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError:  # of an extra
        continue
for module in [one for name, one in sorted(sys.modules.items()) if name.startswith("parquet_bloom")]:
    for cls in vars(module).values():
        if not isinstance(cls, type) or not cls.__module__.startswith("parquet_bloom"):
            continue
        if not dataclasses.is_dataclass(cls) or cls.__module__ == "parquet_bloom.records":
            continue
        params = cls.__dataclass_params__
        found[f"{cls.__module__}.{cls.__qualname__}"] = [
            re.sub(" at 0x[0-9a-f]+", "", str(inspect.signature(cls))),
            [[f.name, str(f.type), f.init, f.repr, f.compare, f.hash, f.kw_only, f.default_factory is not dataclasses.MISSING]
             for f in dataclasses.fields(cls)],
            list(cls.__match_args__),
            list(getattr(cls, "__slots__", ["none"])),
            cls.__hash__ is None,
            [params.repr, params.eq, params.frozen, params.order],
            [base.__qualname__ for base in cls.__mro__],
            cls.__setattr__ is object.__setattr__,
            sorted(set(vars(cls)) - {"__record__", "__getstate__", "__setstate__", "__replace__"}),
            (cls.__doc__ or "").startswith(cls.__name__ + "(") or cls.__doc__,
        ]
print(json.dumps(found))
"""  # noqa: E501


def test_every_class_of_the_package_is_the_standard_librarys() -> None:
    ours, theirs = (
        json.loads(subprocess.run([sys.executable, "-c", FACTS, by], capture_output=True, check=True).stdout)
        for by in ("ours", "standard")
    )
    assert len(theirs) > 200
    assert {name for name in ours if name not in theirs} == {name for name in theirs if name not in ours} == set()
    for name, facts in theirs.items():
        facts[-1] = ours[name][-1] if facts[-1] is True else facts[-1]  # a docstring that nobody wrote
        assert ours[name] == facts, name


# --- how they are used ----------------------------------------------------------------------------


def classes(make: Callable[..., Any]) -> list[tuple[type, list[tuple[tuple[Any, ...], dict[str, Any]]]]]:
    """The same classes, made by one decorator or the other; and arguments for each."""

    @make(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 3
        note: str = field(default="", compare=False)
        tags: list[str] = field(default_factory=list, compare=False, repr=False)

    @make(frozen=True, slots=True)
    class Named(Point):
        name: str = "n"
        y: int = 7
        secret: str = field(default="s", repr=False, kw_only=True)

    @make(slots=True)
    class Open:
        limit: ClassVar[int] = 5
        values: list[int]
        more: dict[str, int] = field(default_factory=dict)
        made: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            self.made.append(len(self.values))

    @make(frozen=True)
    class Loose:
        a: float
        b: Any = None

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose) and self.a == other.a

    @make(slots=True, kw_only=True, repr=False)
    class ByName:
        a: int
        b: int = 2

        def __repr__(self) -> str:
            return f"<{self.a}>"

    @make
    class Single:
        only: Any

    @make(frozen=True, slots=True)
    class Nothing:
        pass

    @make(frozen=True, slots=True)
    class Hashed:
        a: int

        def __hash__(self) -> int:
            return 17

    def of(*arguments: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments, named

    made = [
        (Point, [of(1), of(1, 2), of(1, 3, "x"), of(x=1, tags=["a"]), of(), of(1, 2, 3, 4, 5), of(1, z=2)]),
        (Named, [of(1), of(1, name="m"), of(1, 7, "", [], "n", secret="t"), of(1, 7, "", [], "n", "t")]),
        (Open, [of([1]), of([1, 2]), of([1], {"a": 1}), of([1], made=[3])]),
        (Loose, [of(1.0), of(1.0, 2), of(float("nan"))]),
        (ByName, [of(a=1), of(1), of(a=1, b=3)]),
        (Single, [of(1), of((1, 2)), of([])]),
        (Nothing, [of(), of(1)]),
        (Hashed, [of(1), of(2)]),
    ]
    for cls, _ in made:
        globals()[cls.__qualname__.rpartition(".")[2]] = cls  # for pickle, which finds a class by its name
        cls.__qualname__ = cls.__name__
    return made


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error).__name__, str(error).replace("<locals>.", "")


def used(cls: type, calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
    """What happens with objects of a class."""
    said: list[Any] = [str(inspect.signature(cls)), [f.name for f in dataclasses.fields(cls)]]
    made: list[Any] = []
    for arguments, named in calls:
        one = outcome(lambda a=arguments, n=named: cls(*a, **n))
        said.append(repr(one))
        made += [] if isinstance(one, tuple) else [one]
    for one in made:
        said.append([one == other for other in made] + [one != other for other in made] + [one == 5, one is one])
        said.append(outcome(lambda one=one: hash(one) == hash(copy.copy(one))))
        said += [repr(copy.copy(one)), repr(copy.deepcopy(one)), outcome(lambda one=one: repr(dataclasses.asdict(one)))]
        said += [repr(pickle.loads(pickle.dumps(one, protocol))) for protocol in (2, 4, 5)]
        said += [pickle.loads(pickle.dumps(one)) == one, dataclasses.is_dataclass(one), hasattr(one, "__dict__")]
        for name in (f.name for f in dataclasses.fields(cls)):  # of other names 3.11 raises a TypeError by mistake
            said.append(outcome(lambda one=one, name=name: setattr(copy.copy(one), name, 1)))
            said.append(outcome(lambda one=one, name=name: delattr(copy.copy(one), name)))
            said.append(outcome(lambda one=one, name=name: repr(dataclasses.replace(one, **{name: 9}))))
    return said


def test_objects_are_used_alike() -> None:
    found = []
    for make in (records.dataclass, dataclasses.dataclass):
        found.append([used(cls, calls) for cls, calls in classes(make)])
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs


def test_a_match_by_position_and_a_class_within_itself() -> None:
    (point, _), *_, (single, _), _, _ = classes(records.dataclass)
    match point(1, 2):
        case point(x, y):  # type: ignore[misc]
            assert (x, y) == (1, 2)
    one = single(None)
    one.only = [one]
    assert repr(one) == "Single(only=[...])"


def test_arrays_are_compared_as_in_tuples() -> None:
    *_, (single, _), _, _ = classes(records.dataclass)
    values = np.arange(3)
    assert single(values) == single(values)
    with pytest.raises(ValueError, match="ambiguous"):
        single(values) == single(values.copy())  # noqa: B015


def test_classes_below_them() -> None:
    """One that nobody decorates, and one of the standard library's."""
    (point, _), *_ = classes(records.dataclass)

    class Below(point):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(4)
            object.__setattr__(self, "free", 1)
            self.more = 2

    below = Below()
    assert (below.x, below.free, below.more, repr(below)[-16:]) == (4, 1, 2, "x=4, y=3, note='')"[-16:])
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        below.x = 3
    assert below != point(4)

    @dataclasses.dataclass(frozen=True)
    class Standard(point):  # type: ignore[misc, valid-type]
        z: int = 1

    assert repr(Standard(1, z=5)).endswith("Standard(x=1, y=3, note='', z=5)")
    assert dataclasses.replace(Standard(1), z=2).z == 2
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Other", (point,), {}))
