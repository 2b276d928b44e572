"""Classes whose methods are made late are those that dataclasses.dataclass makes."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

import parquet_bloom
from parquet_bloom import dataclass as room
from parquet_bloom.dataclass import dataclass

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="there they are those of dataclasses")
T = TypeVar("T")
MADE_LATE = ["__init__", "__repr__", "__eq__", "__hash__", "__dataclass_fields__", "__dataclass_params__"]


def classes_of_the_package() -> list[type]:
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(parquet_bloom.__path__, "parquet_bloom."):
        if not module.name.endswith("__main__") and "_thrift" not in module.name:
            try:
                loaded = importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed here
                continue
            own = [one for one in vars(loaded).values() if isinstance(one, type) and one.__module__ == module.name]
            found.update(dict.fromkeys(one for one in own if "_dataclass_plan" in vars(one)))
    return list(found)


def standard(one: Any) -> Any:
    """The class as dataclasses.dataclass makes it from the same class statement."""
    plan = vars(one)["_dataclass_plan"]
    plain = type(one)(one.__name__, one.__bases__, dict(plan.namespace))
    plain.__qualname__ = one.__qualname__
    return dataclasses.dataclass(**plan.arguments, slots=plan.slots)(plain)


def shown(field: dataclasses.Field[Any]) -> list[object]:
    names = ("name", "type", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    return [getattr(field, name) for name in names]


def test_every_class_of_the_package_is_what_dataclasses_makes() -> None:
    classes = classes_of_the_package()
    assert len(classes) > 200
    for ours in classes:
        theirs = standard(ours)
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs)), ours
        assert ours.__match_args__ == theirs.__match_args__, ours
        assert vars(ours).get("__slots__") == vars(theirs).get("__slots__"), ours
        assert (ours.__hash__ is None) == (theirs.__hash__ is None), ours
        missing = {name for name in vars(theirs) if name not in vars(ours)}
        assert not missing, ours
        assert [shown(f) for f in dataclasses.fields(ours)] == [shown(f) for f in dataclasses.fields(theirs)], ours
        assert getattr(ours.__init__, "__annotations__", None) == getattr(theirs.__init__, "__annotations__", None)
        late = [name for name, value in vars(ours).items() if type(value).__name__ == "_Later"]
        assert not late, "what was asked for stands in the class"


def test_no_module_takes_the_decorator_of_dataclasses() -> None:
    package = Path(room.__file__).parent
    taken = re.compile(r"^from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass", re.MULTILINE)
    found = [
        path.name for path in package.rglob("*.py") if path.name != "dataclass.py" and taken.search(path.read_text())
    ]
    assert found == []


# --- what objects do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 5


@dataclass(frozen=True, slots=True)
class Named(Point):
    label: str = field(default="a", compare=False, repr=False)
    kind: ClassVar[str] = "point"


@dataclass(slots=True)
class Bag(Generic[T]):
    self: T
    things: list[T] = field(default_factory=list)
    once: list[T] = field(default_factory=list, init=False)
    fixed: int = field(default=3, init=False)


@dataclass
class Open:
    a: int
    b: int = field(default=2, init=False)
    c: list[int] = field(default_factory=list)
    d: int = field(default=4, kw_only=True)

    def __post_init__(self) -> None:
        self.total = self.a + self.b + self.d


@dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Own:
    one: int
    two: int = 2

    def __repr__(self) -> str:
        return "mine"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return 7


@dataclass(frozen=True)
class Wide:
    a: int


class WithMore(Wide):
    def __init__(self, a: int) -> None:
        super().__init__(a)
        self.more = a + 1


CASES: list[tuple[type, Callable[[Any], Any]]] = [
    (Point, lambda kind: kind(1)),
    (Point, lambda kind: kind(y=1, x=2)),
    (Named, lambda kind: kind(1, 2, "c")),
    (Bag, lambda kind: kind(1)),
    (Bag, lambda kind: kind(1, [2])),
    (Open, lambda kind: kind(1, d=7)),
    (Version, lambda kind: kind(1)),
    (Own, lambda kind: kind(one=1)),
    (Wide, lambda kind: kind(1)),
]


@pytest.mark.parametrize(("ours", "make"), CASES)
def test_objects_are_those_of_dataclasses(ours: type, make: Callable[[Any], Any]) -> None:
    theirs = standard(ours)
    one, other = make(ours), make(theirs)
    assert repr(one) == repr(other)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert one == make(ours)
    assert one != other, "another class"
    if ours.__hash__ is not None:
        assert hash(one) == hash(other) == hash(make(ours))
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    names = [f.name for f in dataclasses.fields(one) if f.init]
    assert dataclasses.replace(one, **{names[0]: 9}) == dataclasses.replace(one, **{names[0]: 9})
    assert getattr(dataclasses.replace(one, **{names[0]: 9}), names[0]) == 9


@pytest.mark.parametrize("words", [(), (1, 2, 3), (1, 2, 3, 4)])
def test_wrong_arguments_are_named(words: tuple[int, ...]) -> None:
    found = []
    for kind in (Point, standard(Point)):
        with pytest.raises(TypeError) as caught:
            kind(*words)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_an_object_that_is_frozen_is_not_changed() -> None:
    point, more = Point(1), WithMore(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'y'"):
        del point.y
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'z'"):
        point.z = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        more.a = 2  # type: ignore[misc]
    assert (more.a, more.more) == (1, 2), "a class below has attributes of its own"


def test_factories_give_each_object_its_own_value() -> None:
    one, other = Bag(1), Bag(1)
    one.things.append(2)
    one.once.append(3)
    assert (other.things, other.once, other.fixed) == ([], [], 3)


def test_patterns_take_fields_by_place() -> None:
    match Named(1, 2, "c"):
        case Named(x, y, label):
            assert (x, y, label) == (1, 2, "c")
    assert Own.__match_args__ == ()


def test_objects_are_sorted() -> None:
    assert sorted([Version(2), Version(1, 1), Version(1)]) == [Version(1), Version(1, 1), Version(2)]


def test_a_class_that_dataclasses_makes_below_one_has_its_fields() -> None:
    below = dataclasses.make_dataclass("Below", [("z", int)], bases=(Wide,), frozen=True)
    assert repr(below(1, 2)) == "Below(a=1, z=2)"


def test_many_threads_make_the_first_object() -> None:
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class First:
            a: int
            b: tuple[int, ...] = ()

        gate = threading.Barrier(8)
        found: list[object] = []

        def make(first: type = First, gate: threading.Barrier = gate, found: list[object] = found) -> None:
            gate.wait()
            found.append((first(1), hash(first(1)), repr(first(2))))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len(set(found)) == 1


def test_methods_are_made_when_they_are_called() -> None:
    @dataclass(frozen=True, slots=True)
    class Late:
        a: int

    def late() -> list[str]:
        return [name for name in MADE_LATE if type(vars(Late)[name]) is room._Later]

    assert late() == MADE_LATE
    one = Late(1)
    assert late() == MADE_LATE[1:]
    assert one == Late(1)
    assert late() == []
