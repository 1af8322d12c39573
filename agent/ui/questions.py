"""Questions of permission: the choices a person has, and what their answer means."""

from ..events import Answer, Question

ANSWERS = "ya"  # characters that answer a question of permission at once
INSTANT = "yaen"  # those that any question may take so


def keys(question: Question) -> str:
    """Those of `ANSWERS` that this question takes."""
    return ANSWERS if question.rule else "y"


def choices(question: Question) -> str:
    """The choices in one line, with the exact rule that would be remembered."""
    always = f" · [a]lways this session: {question.rule}" if question.rule else ""
    return f"[y]es{always} · [n]o, or n and why"


def answer_of(text: str, question: Question) -> Answer | None:
    """What was answered; None when it must be asked again.

    Words that are none of the choices are a refusal with a reason: never a permission.
    """
    first, _, rest = text.strip().partition(" ")
    word = first.lower().rstrip(",.:;")
    if not word:
        return None
    if word in ("n", "no"):
        return Answer(False, reason=rest.strip())
    if word in ("y", "yes") and not rest:
        return Answer(True)
    if word in ("a", "always") and not rest:
        return Answer(True, remember=True) if question.rule else None
    return Answer(False, reason=text.strip())
