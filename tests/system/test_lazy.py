"""Data classes and patterns of `agent/lazy.py` are as those of the standard library."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, replace
from typing import Any, ClassVar

import pytest

from ctxagent.agent.lazy import dataclass, regex

MakeClass = Callable[..., Any]


def classes(decorator: MakeClass, **options: Any) -> tuple[Any, Any]:
    """A class with each kind of field, and one that is derived from it."""

    @decorator(**options)
    class Base:
        kind: ClassVar[str] = "base"
        number: int
        text: str = "as usual"
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=7, repr=False, compare=False)
        late: int = field(init=False, default=3)

        @property
        def double(self) -> int:
            return 2 * self.number

    @decorator(**options)
    class Derived(Base):
        kind: ClassVar[str] = "derived"
        text: str = "another"
        more: dict[str, int] = field(default_factory=dict, kw_only=True)
        last: int = 0

    return Base, Derived


OPTIONS: list[dict[str, Any]] = [
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True},
    {},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_objects_are_as_those_of_the_standard_library(options: dict[str, Any]) -> None:
    for own, usual in zip(
        classes(dataclass, **options), classes(dataclasses.dataclass, **options), strict=True
    ):
        mine, theirs = own(1, many=[2]), usual(1, many=[2])
        assert repr(mine) == repr(theirs)
        assert asdict(mine) == asdict(theirs)
        assert astuple(mine) == astuple(theirs)
        assert [f.name for f in fields(own)] == [f.name for f in fields(usual)]
        assert own.__match_args__ == usual.__match_args__
        assert mine == own(1, many=[2], hidden=8)
        assert mine != own(2, many=[2])
        assert mine != theirs
        assert replace(mine, number=5).double == 10
        assert own(1).many is not own(1).many
        assert hasattr(mine, "__dict__") == hasattr(theirs, "__dict__")
        assert copy.copy(mine) == mine
        assert own.__init__.__qualname__ == usual.__init__.__qualname__
        assert own.kind == usual.kind


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "words", [((), {}), ((1,), {"unknown": 1}), ((1, "", [], 7, 5, 5, 5), {}), ((1,), {"late": 4})]
)
def test_wrong_arguments_are_refused_in_the_same_words(options: Any, words: Any) -> None:
    told = []
    for make in (dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError) as error:
            classes(make, **options)[1](*words[0], **words[1])
        told.append(str(error.value))
    assert told[0] == told[1]


def test_only_frozen_ones_have_a_hash_and_refuse_a_change() -> None:
    @dataclass(frozen=True, slots=True)
    class Frozen:
        number: int
        text: str = ""

    @dataclass(slots=True)
    class Open:
        number: int

    assert hash(Frozen(1)) == hash(Frozen(1))
    assert {Frozen(1): "one"}[Frozen(1)] == "one"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'number'"):
        Frozen(1).number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'number'"):
        del Frozen(1).number  # type: ignore[misc]
    changed = Open(1)
    changed.number = 2
    assert changed == Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(changed)


def test_own_methods_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        name: str
        seen: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.seen.append(self.name)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named)

        def __hash__(self) -> int:
            return 1

        def __repr__(self) -> str:
            return "<named>"

    assert (Named("a").seen, repr(Named("a")), hash(Named("a"))) == (["a"], "<named>", 1)
    assert Named("a") == Named("b")


@dataclass(frozen=True, slots=True)
class Pickled:
    number: int
    inner: "Pickled | None" = None


def test_an_object_survives_a_pickle() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, Pickled(2)))) == Pickled(1, Pickled(2))
    assert repr(Pickled(1, Pickled(2))) == "Pickled(number=1, inner=Pickled(number=2, inner=None))"


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    name = regex(r"(\w+)=(\d+)", re.ASCII)
    assert name.pattern == r"(\w+)=(\d+)"
    assert "search" not in vars(name)
    found = name.search("a=1, b=2")
    assert found
    assert found.groups() == ("a", "1")
    assert vars(name)["search"].__self__ == re.compile(r"(\w+)=(\d+)", re.ASCII)
    assert name.sub(r"\2=\1", "a=1") == "1=a"
    assert name.flags == re.ASCII
    with pytest.raises(re.error):
        regex("(").search("")
