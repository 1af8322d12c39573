"""Denied calls: the denials of a turn, and the resulting error."""

from ctxagent.agent.loop.denials import Denial, Denials, denial_error


def denial(title: str, rule: str = "", *, asked: bool = False) -> Denial:
    return Denial("Bash", title, rule, "not allowed here", asked)


def test_a_turn_has_its_own_denials() -> None:
    denials, first, second = Denials(), denial("a"), denial("b", asked=True)
    denials.add(first, second)
    assert denials.of_turn() == [first, second]
    assert denials.unasked() == [first]
    denials.end_turn()
    assert denials.of_turn() == denials.unasked() == []
    third = denial("c")
    denials.add(third)
    assert denials.unasked() == [third]
    assert list(denials) == [first, second, third]


def test_the_error_says_how_to_allow_each_once() -> None:
    assert denial_error([]) is None
    error = denial_error([denial("a", "Bash(a:*)"), denial("a", "Bash(a:*)"), denial("Who?")])
    assert error == {
        "type": "PermissionDenied",
        "message": "Bash a: not allowed here; allow it with --allow 'Bash(a:*)'\n"
        "Bash Who?: not allowed here; answer it with --answers FILE",
    }
