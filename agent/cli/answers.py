"""`--answers FILE`: prepared answers to the agent's questions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..events import GivenAnswers

MAX_ANSWERS_BYTES = 1_000_000
OTHER_QUESTIONS = "*"  # the key for all other questions


def read_answers(path: Path) -> GivenAnswers:
    """Return the answers in a JSON file: an object whose keys are questions or parts of questions
    (`*` for all others), or a list in the order of the questions. An answer is a text, or a list of
    texts for several choices. Raises UsageError.
    """
    hint = 'For example {"Which colour?": "red", "*": "yes"}, or ["red", "yes"].'
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_ANSWERS_BYTES))
    except OSError as error:
        raise UsageError(f"--answers {path}: {error.strerror}", hint=hint) from None
    except (ValueError, RecursionError):
        raise UsageError(f"--answers {path}: it is not JSON", hint=hint) from None
    values = list(found.values()) if isinstance(found, Mapping) else found
    if not isinstance(values, list) or not all(map(_is_answer, values)):
        raise UsageError(
            f"--answers {path}: every answer must be a text or a list of texts", hint=hint
        )
    if isinstance(found, list):
        waiting = iter(found)
        return lambda question: _text(next(waiting, None))
    return lambda question: _text(_find_answer(found, question))


def _find_answer(found: Mapping[str, Any], question: str) -> Any:
    """Return the answer whose key is the longest part of the question."""
    parts = [key for key in found if key != OTHER_QUESTIONS and key.lower() in question.lower()]
    return found[max(parts, key=len)] if parts else found.get(OTHER_QUESTIONS)


def _is_answer(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def _text(answer: Any) -> str | None:
    return ", ".join(answer) if isinstance(answer, list) else answer
