"""The question whether to approve a plan. The plan is rendered and can be edited. The answer is a
permission mode, or a refusal.
"""

from functools import partial
from typing import TYPE_CHECKING

from ...errors import CtxagentError
from ...events import Answer, Question
from ..question import ChoiceRow
from ..screen import Screen

if TYPE_CHECKING:
    from ..transcript import Transcript

# Approval word → (permission mode for the plan, label).
MODES: dict[str, tuple[str, str]] = {
    "yes": ("accept-edits", "[y]es, and stop asking about edits"),
    "ask": ("ask", "yes, and keep [a]sking about edits"),
    "sandboxed": ("sandboxed", "[s]andboxed"),
    "bypass": ("bypass", "[b]ypass"),
}


async def ask_plan_approval(screen: Screen, transcript: "Transcript", question: Question) -> Answer:
    """Show a plan and return the user's answer: approval with the edited plan and the permission
    mode, or refusal. Any other text is a refusal with that text as the reason.
    """
    from ...features.plan import PLAN_FILE

    plan, problem = question.plan, ""
    offered = {word: each for word, each in MODES.items() if each[0] in question.modes}
    rows = [ChoiceRow(word[0], label) for word, (_, label) in offered.items()]
    rows += [
        ChoiceRow("e", "[e]dit the plan"),
        ChoiceRow("n", "[n]o, and say what to change", reply_prefix="n "),
    ]
    transcript.propose(plan)
    while True:
        said = (await screen.answer(partial(_choices, problem), "", rows=rows)).strip()
        word, problem = said.lower().rstrip(",.:;"), ""
        chosen = next((m for full, (m, _) in offered.items() if word in (full, full[0])), None)
        try:
            if chosen is not None:
                question.check(plan)
                return Answer(True, plan=plan, mode=chosen)
            if word in ("e", "edit"):
                plan = (await screen.edit(plan, PLAN_FILE)).strip()
                transcript.propose(plan)
                question.check(plan)
        except CtxagentError as error:
            problem = "\n  ".join(filter(None, [f"✗ {error.message}", error.hint]))
            continue
        if said and word not in ("e", "edit"):
            first, _, rest = said.partition(" ")
            is_no = first.lower().rstrip(",.:;") in ("n", "no")
            return Answer(False, reason=rest.strip() if is_no else said)


def _choices(problem: str, typed: str) -> str:
    """Return the problem with the previous answer, or the effect of the refusal being typed."""
    return "no; the model gets this text" if typed.strip() else problem
