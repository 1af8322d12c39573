"""/plan: the approved plan."""

from ...errors import UsageError
from . import completions
from .command_context import CommandContext
from .registry import command

NO_PLAN = "there is no plan"
HOW_TO_PLAN = "In the mode plan (`/permissions plan`) the agent proposes one."


@command(
    "the plan you approved; edit it, or drop it",
    argument="[edit | drop]",
    complete=completions.fixed(("edit", "drop")),
    group="files and work",
)
async def _plan(repl: CommandContext, argument: str) -> None:
    from ...features.plan import PLAN_FILE, PlanFeature

    agent = repl.agent
    feature = agent.features.find(PlanFeature)
    fact = agent.ledger.plan
    if argument not in ("", "edit", "drop"):
        raise UsageError(f"/plan does not take {argument!r}", hint="/plan, /plan edit, /plan drop")
    if feature is None and (argument or fact is None):
        raise UsageError("plans are switched off", hint="See the setting features.off.")
    if fact is None:
        raise UsageError(NO_PLAN, hint=HOW_TO_PLAN)
    if argument == "drop" and feature:
        feature.drop()
        repl.say("the plan is dropped; the todo list is unchanged")
        return
    if argument == "edit" and feature:
        text = (await repl.screen.edit(fact.text, PLAN_FILE)).strip()
        if text == fact.text.strip():
            repl.say("the plan is unchanged")
            return
        feature.check(text)
        await agent.begin()
        feature.keep(text)
        repl.say("the plan is saved; the agent gets it with your next message")
        return
    repl.show_report(fact.text)
    state = "approved" if fact.agreed else "proposed, not approved"
    todos = agent.ledger.todos
    done = sum(todo["status"] == "completed" for todo in todos)
    repl.say(f"{state} in #{fact.ref} · {done} of {len(todos)} on the todo list done")
