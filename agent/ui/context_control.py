"""Requests of programs and editors about the context of a live session: list the items, edit them,
and undo an edit. A request and its answer are JSON objects.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import UsageError
from ..lazy import dataclass

if TYPE_CHECKING:
    from ..compaction.edits import EditPlan
    from ..loop.agent import AgentState

RequestedAction = Literal["items", "drop", "restore", "compact", "undo"]
ACTIONS: tuple[RequestedAction, ...] = get_args(RequestedAction)
HINT = 'For example {"type": "context", "action": "drop", "refs": [42], "dry_run": true}.'


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """One request about the context."""

    action: RequestedAction
    id: str = ""  # repeated in the answer
    refs: tuple[int, ...] = ()  # to drop or restore
    first: int | None = None  # of the part to compact: "from", "to" and "before"
    last: int | None = None
    before: int | None = None
    instructions: str = ""
    dry_run: bool = False


def read_request(given: Mapping[str, Any]) -> ContextRequest:
    """Parse a request. Raises UsageError."""
    action = given.get("action")
    if action not in ACTIONS:
        raise UsageError(f"action is not one of {', '.join(ACTIONS)}", hint=HINT)
    refs, id, instructions = (
        given.get("refs", []),
        given.get("id", ""),
        given.get("instructions", ""),
    )
    places = {name: given.get(name) for name in ("from", "to", "before")}
    if not isinstance(refs, list) or not all(map(_is_ref, refs)):
        raise UsageError("refs is not a list of numbers", hint=HINT)
    if wrong := [name for name, ref in places.items() if ref is not None and not _is_ref(ref)]:
        raise UsageError(f"{wrong[0]} is not a number", hint=HINT)
    if not isinstance(id, str) or not isinstance(instructions, str):
        raise UsageError("id or instructions is not a string", hint=HINT)
    dry_run = given.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise UsageError("dry_run is not true or false", hint=HINT)
    part = places["from"], places["to"], places["before"]
    return ContextRequest(action, id, tuple(refs), *part, instructions, dry_run)


def _is_ref(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def answer_request(agent: "AgentState", request: ContextRequest) -> dict[str, Any]:
    """Carry out a request and return the answer. While the model replies, an edit waits. Raises
    CtxagentError.
    """
    edits, found = agent.edits, dict[str, Any]()
    await agent.model.window()
    if not request.dry_run and request.action != "items":
        agent.log.check_writable()
    if request.action == "items":
        found = {"items": [item.to_json() for item in edits.items()]}
    elif request.action == "undo" and not request.dry_run:
        found = {"undone": [act.seq for act in await edits.undo()]}
    else:
        found = (await _edited(agent, request)).to_json()
    window = agent.model.current_window()
    return {
        "type": "context",
        "id": request.id,
        **found,
        "action": request.action,
        "applied": not request.dry_run and request.action != "items",
        "context": {"tokens": window.tokens, "window": window.size, "level": window.level},
    }


async def _edited(agent: "AgentState", request: ContextRequest) -> "EditPlan":
    """Plan an edit, and apply it unless only the plan is wanted."""
    edits, part = agent.edits, (request.first, request.last)
    refs, before = request.refs, request.before
    if request.dry_run:
        if request.action == "compact":
            return edits.plan_compact(*part, before=before)
        if request.action == "undo":
            return await edits.plan_undo()
        return edits.plan_drop(refs) if request.action == "drop" else edits.plan_restore(refs)
    if request.action == "compact":
        return await edits.compact(*part, request.instructions, before=before)
    return await (edits.drop(refs) if request.action == "drop" else edits.restore(refs))
