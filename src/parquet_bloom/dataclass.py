"""`@dataclass` as dataclasses has it, but each class gets its methods when the first of them is called.

    from parquet_bloom.dataclass import dataclass        for from dataclasses import dataclass

dataclasses.dataclass compiles some five functions for each class: 0.6 ms. A short command loads a hundred such classes,
makes objects of few, and compares or prints hardly any: that was a fifth of the time of a whole `check`. Here
`__init__` is compiled when the first object is made. `__eq__`, `__hash__`, `__repr__`, the order and what
dataclasses.fields and replace need come from dataclasses itself, all together, when the first of them is asked for.
Until then a descriptor stands in the place of each, in the class.

Of dataclass's arguments there are those that this package uses. Annotations are texts: each module has
`from __future__ import annotations`. InitVar and KW_ONLY are not known. tests/test_dataclass.py makes each class of the
package again by dataclasses.dataclass, and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")
_REPLACE = ("__replace__",) if sys.version_info >= (3, 13) else ()  # of copy.replace
_PLAN = "_dataclass_plan"


class _Default:
    """In a signature, the default of a field that gets a new value for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_NEW = _Default()


class _Plan:
    """A class and what it takes to make its methods.

    cls        the class that everybody sees
    namespace  of the class statement: with the defaults and dataclasses.field(..) of the fields
    arguments  of the decorator, but for slots
    own        fields that its own annotations declare: name -> annotation
    """

    __slots__ = ("arguments", "cls", "namespace", "own", "slots")

    def __init__(self, cls: type, slots: bool, arguments: dict[str, bool]) -> None:
        self.cls, self.slots, self.arguments = cls, slots, arguments
        self.namespace = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        annotations: dict[str, str] = self.namespace.get("__annotations__", {})
        self.own = {name: kind for name, kind in annotations.items() if not kind.startswith("ClassVar")}

    def own_default(self, name: str) -> Any:
        """The value of a field in the class statement: a default or dataclasses.field(..); without one, the plan."""
        return self.namespace.get(name, self)

    def is_parameter(self, name: str, *, by_place: bool = False) -> bool:
        """Whether `__init__` takes a field of its own; by_place: without its name."""
        default = self.own_default(name)
        if not _is_field(default):
            return not (by_place and self.arguments["kw_only"])
        by_name = self.arguments["kw_only"] if not isinstance(default.kw_only, bool) else default.kw_only
        return bool(default.init) and not (by_place and by_name)

    def fields(self) -> dict[str, _Plan]:
        """The plan that declares each field, in the order of the fields."""
        found: dict[str, _Plan] = {}
        for base in reversed(self.cls.__mro__):
            plan = vars(base).get(_PLAN)
            if plan is not None:
                found.update(dict.fromkeys(plan.own, plan))
        return found

    def make(self, name: str) -> Any:
        """Make the method that a descriptor stands for; the method, or the value."""
        if name == "__init__":
            self.cls.__init__ = self._init()  # type: ignore[misc]
        elif name == "__match_args__":
            found = tuple(name for name, by in self.fields().items() if by.is_parameter(name, by_place=True))
            setattr(self.cls, "__match_args__", found)  # noqa: B010  (mypy knows the name)
        else:
            self._complete()
        return vars(self.cls)[name]

    def _complete(self) -> None:
        """Put what dataclasses makes into the class, where the class does not have it yet."""
        from dataclasses import dataclass as standard

        cls = self.cls
        twin = type(cls)(cls.__name__, cls.__bases__, dict(self.namespace))
        twin.__qualname__ = cls.__qualname__
        standard(**self.arguments)(twin)
        for name, value in vars(twin).items():
            if isinstance(vars(cls).get(name), _Later):
                setattr(cls, name, value)

    def _init(self) -> Callable[..., None]:
        """`__init__` as dataclasses writes it."""
        fields = self.fields()
        me = "self" if "self" not in fields else "__dataclass_self__"
        known: dict[str, Any] = {"_set": object.__setattr__, "_new": _NEW}
        by_place: list[str] = []
        by_name: list[str] = []
        body: list[str] = []
        kinds: dict[str, str] = {}
        for name, plan in fields.items():
            default = plan.own_default(name)
            value, given = name, name
            if _is_field(default):
                if callable(default.default_factory):
                    known[f"_make_{name}"] = default.default_factory
                    given = f"{name}=_new"
                    value = f"_make_{name}() if {name} is _new else {name}"
                    value = value if default.init else f"_make_{name}()"
                    default = plan
                elif default.default is default.default_factory:  # both are dataclasses.MISSING
                    default = plan
                else:
                    default = default.default
            if default is not plan:
                known[f"_default_{name}"] = default
                given = f"{name}=_default_{name}"
            if plan.is_parameter(name):
                (by_place if plan.is_parameter(name, by_place=True) else by_name).append(given)
                kinds[name] = plan.own[name]
            elif value is name:  # it is no parameter: a default, which a class without slots has itself
                if default is plan or not self.slots:
                    continue
                value = f"_default_{name}"
            body.append(f"_set({me}, {name!r}, {value})" if self.arguments["frozen"] else f"{me}.{name} = {value}")
        if hasattr(self.cls, "__post_init__"):
            body.append(f"{me}.__post_init__()")
        parameters = ", ".join([me, *by_place, *(["*", *by_name] if by_name else [])])
        lines = "\n  ".join(body or ["pass"])
        text = f"def _create({', '.join(known)}):\n def __init__({parameters}):\n  {lines}\n return __init__"
        made: dict[str, Any] = {}
        exec(text, sys.modules[self.cls.__module__].__dict__, made)
        init = made["_create"](**known)
        init.__qualname__ = f"{self.cls.__qualname__}.__init__"
        init.__annotations__ = {**kinds, "return": None}
        return init  # type: ignore[no-any-return]


class _Later:
    """Stands in a class for a method that is not made yet."""

    __slots__ = ("name", "plan")

    def __init__(self, name: str, plan: _Plan) -> None:
        self.name, self.plan = name, plan

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self.plan.make(self.name)
        bind = getattr(type(made), "__get__", None)
        return made if bind is None else bind(made, instance, owner)


def _is_field(value: object) -> bool:
    """Whether a value is that of dataclasses.field; who called that has loaded dataclasses."""
    known = sys.modules.get("dataclasses")
    return known is not None and isinstance(value, known.Field)


def _get_state(self: Any) -> list[Any]:
    """For pickle: the values of an object that has neither a `__dict__` nor attributes which can be set."""
    from dataclasses import fields

    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    from dataclasses import fields

    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _refusals(plan: _Plan) -> dict[str, Callable[..., None]]:
    """The methods by which objects refuse to be changed."""

    def refuse(self: object, name: str, doing: str) -> Any:
        if type(self) is plan.cls or name in plan.fields():
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {doing} field {name!r}")
        above: Any = super
        return above(plan.cls, self)  # of a class below, which may have more attributes

    def __setattr__(self: object, name: str, value: object) -> None:
        refuse(self, name, "assign to").__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        refuse(self, name, "delete").__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _decorate(cls: type, slots: bool, arguments: dict[str, bool]) -> type:
    plan = _Plan(cls, slots, arguments)
    there = plan.namespace
    frozen, eq = arguments["frozen"], arguments["eq"]
    names = ["__init__", "__match_args__"] + ["__repr__"] * arguments["repr"] + ["__eq__"] * eq + [*_REPLACE]
    names += _ORDER if arguments["order"] else ()
    new: dict[str, Any] = {name: _Later(name, plan) for name in names if name not in there}
    new |= {name: _Later(name, plan) for name in ("__dataclass_fields__", "__dataclass_params__")}
    if eq and (there.get("__hash__") is None and ("__eq__" in there or "__hash__" not in there)):
        new["__hash__"] = _Later("__hash__", plan) if frozen else None
    if frozen:
        new |= _refusals(plan)
        if slots:
            new |= {"__getstate__": there.get("__getstate__", _get_state)}
            new |= {"__setstate__": there.get("__setstate__", _set_state)}
    new[_PLAN] = plan
    if slots:
        above = [vars(base).get("__slots__", ()) for base in cls.__mro__[1:]]
        inherited = {name for slots_of in above for name in ([slots_of] if isinstance(slots_of, str) else slots_of)}
        content = {name: value for name, value in there.items() if name not in plan.own} | new
        content["__slots__"] = tuple(name for name in plan.own if name not in inherited)
        plan.cls = type(cls)(cls.__name__, cls.__bases__, content)
        plan.cls.__qualname__ = cls.__qualname__
    else:
        for name, value in new.items():
            setattr(cls, name, value)
        for name in plan.own:
            if _is_field(default := plan.own_default(name)):
                if default.default is default.default_factory or callable(default.default_factory):
                    delattr(cls, name)
                else:
                    setattr(cls, name, default.default)
    return plan.cls


if TYPE_CHECKING or sys.version_info >= (3, 14):  # where annotations are made late, and nobody has tried this
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, repr=True, eq=True, order=False, frozen=False, kw_only=False, slots=False):
        """A class with fields, as dataclasses.dataclass makes it."""
        arguments = {"repr": repr, "eq": eq, "order": order, "frozen": frozen, "kw_only": kw_only}
        return _decorate(cls, slots, arguments) if cls is not None else lambda one: _decorate(one, slots, arguments)
