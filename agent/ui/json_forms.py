"""Events and questions as JSON, for the programs that read them."""

import dataclasses
import re
from typing import Any

from ..events import AgentStarted, Event, Question


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object; its type is the event's name in snake case."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    fields = dataclasses.asdict(event)
    if isinstance(event, AgentStarted):
        fields["agent_type"] = fields.pop("type")
    return {"type": name, **fields}


def question_json(question: Question) -> dict[str, Any]:
    """Return a question as a JSON object, without the parts that only this process can use."""
    form = [
        {
            "question": each.text,
            "choices": [{"label": label, "description": more} for label, more in each.choices],
            "multiple": each.multiple,
        }
        for each in question.form
    ]
    return {
        "tool": question.tool,
        "title": question.title,
        "input": dict(question.input),
        "reason": question.reason,
        "rule": question.rule,
        "offers": list(question.offers),
        "diff": question.diff,
        "agent": question.agent,
        "form": form,
        "plan": question.plan,
        "modes": list(question.modes),
    }
