"""Question forms for editors that can show them ("elicitation" in the protocol)."""

from collections.abc import Sequence
from typing import Any

from acp.schema import (
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    TitledMultiSelectItems,
)

from ...events import FormQuestion

OTHER = "Your own answer"  # title of the field for a free answer

Field = ElicitationStringPropertySchema | ElicitationMultiSelectPropertySchema


def form_schema(form: Sequence[FormQuestion]) -> ElicitationSchema:
    """Return the fields of a form: the choices of each question, and a field for a free answer."""
    fields = dict[str, Any]()
    for place, question in enumerate(form):
        options = [
            EnumOption(const=label, title=label, description=means or None)
            for label, means in question.choices
        ]
        words = ElicitationStringPropertySchema(type="string", title=OTHER)
        if not options:
            fields[f"words-{place}"] = words.model_copy(update={"title": question.text})
            continue
        fields[f"choice-{place}"] = _choice(question, options)
        fields[f"words-{place}"] = words
    return ElicitationSchema(type="object", properties=fields)


def form_answers(form: Sequence[FormQuestion], content: object) -> list[str]:
    """Return the answers from a filled-in form, in order. A free answer overrides a choice. Returns
    an empty list if any question has no answer.
    """
    given = content if isinstance(content, dict) else {}
    answers = list[str]()
    for place in range(len(form)):
        chosen = given.get(f"choice-{place}")
        several = ", ".join(map(str, chosen)) if isinstance(chosen, list) else str(chosen or "")
        answers.append(str(given.get(f"words-{place}") or "").strip() or several)
    return answers if all(answers) else []


def _choice(question: FormQuestion, options: list[EnumOption]) -> Field:
    if question.multiple:
        return ElicitationMultiSelectPropertySchema(
            type="array", title=question.text, items=TitledMultiSelectItems(any_of=options)
        )
    return ElicitationStringPropertySchema(type="string", title=question.text, one_of=options)
