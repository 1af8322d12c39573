"""Questions to the user, sent to the editor one at a time: as permission requests or as forms.

Forms are for editors that can show them ("elicitation" in the protocol).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    PermissionOption,
    PermissionOptionKind,
    TitledMultiSelectItems,
    ToolCallUpdate,
)

from ...api.base import UsageError
from ...api.front_ends import MODES, SANDBOXED_MEANS
from ...api.session import Answer, FormQuestion, Question
from .updates import UpdateStream, diff_contents, kind_of, text_contents, title_of_call

if TYPE_CHECKING:
    from acp.interfaces import Client

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
        fields[f"choice-{place}"] = _form_choice(question, options)
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


def _form_choice(question: FormQuestion, options: list[EnumOption]) -> Field:
    if question.multiple:
        return ElicitationMultiSelectPropertySchema(
            type="array", title=question.text, items=TitledMultiSelectItems(any_of=options)
        )
    return ElicitationStringPropertySchema(type="string", title=question.text, one_of=options)


ONCE, NO, SANDBOXED, DONE = "once", "no", "sandboxed", "done"  # option IDs
SESSION = "session"  # where a rule is kept: in the session only

Choice = tuple[PermissionOption, Answer]


class EditorQuestions:
    """The questions sent to `client` for one session. `session` returns the session's ID."""

    def __init__(
        self,
        client: "Client",
        session: Callable[[], str],
        updates: UpdateStream,
        *,
        shows_forms: bool,
    ) -> None:
        self._client, self._session, self._updates = client, session, updates
        self._shows_forms = shows_forms
        self._turn = asyncio.Lock()
        self._open: tuple[Question, asyncio.Future[Answer]] | None = None

    async def ask(self, question: Question) -> Answer | None:
        """Return the user's answer; None if the editor has gone or cannot ask."""
        async with self._turn:
            if (settled := question.settled()) is not None:
                return settled
            try:
                if question.form:
                    return await self._ask_form(question)
                if question.plan:
                    return await self._ask_plan_approval(question)
                return await self._permit(question)
            except (RequestError, ConnectionError):
                return None

    def settle(self) -> None:
        """Answer the open question if the current rules or mode settle it."""
        if self._open is None:
            return
        question, answer = self._open
        if not answer.done() and (settled := question.settled()) is not None:
            answer.set_result(settled)

    async def _permit(self, question: Question) -> Answer:
        choices = [_choice(ONCE, "Yes", "allow_once", Answer(True))]
        for place, rule in enumerate(question.offers):
            with suppress(UsageError):
                if not question.check(rule):
                    kept = Answer(True, rule=rule, where=SESSION)
                    name = f"Always in this session: {rule}"
                    choices.append(_choice(f"rule-{place}", name, "allow_always", kept))
        if question.may_be_sandboxed:
            name = f"Yes, {SANDBOXED_MEANS}"
            choices.append(_choice(SANDBOXED, name, "allow_always", Answer(True, sandboxed=True)))
        choices.append(_choice(NO, "No", "reject_once", Answer(False)))
        return await self._put(question, choices, question.reason)

    async def _ask_plan_approval(self, question: Question) -> Answer:
        choices = [
            _choice(mode, label.replace("[", "").replace("]", ""), "allow_once",
                    Answer(True, mode=mode))
            for mode, label in MODES.values()
            if mode in question.modes
        ]  # fmt: skip
        choices.append(_choice(NO, "No, keep planning", "reject_once", Answer(False)))
        return await self._put(question, choices, question.plan)

    async def _ask_form(self, question: Question) -> Answer:
        """Ask the questions of a form, as a form if the editor supports it, else one by one.

        Permission requests of the protocol have no text field. So if a question has no choices, the
        form stays unanswered, and the user answers with the next message.
        """
        if self._shows_forms:
            return await self._show_form(question)
        if not all(each.choices for each in question.form):
            return Answer(False)
        words = list[str]()
        for each in question.form:
            if not (said := await self._choose(question, each)):
                return Answer(False)
            words.append(", ".join(said))
        return Answer(True, words=words)

    async def _show_form(self, question: Question) -> Answer:
        form = question.form
        mode = ElicitationFormSessionMode(
            session_id=self._session(), requested_schema=form_schema(form)
        )
        heading = form[0].text if len(form) == 1 else f"{len(form)} questions"
        answer = await self._client.create_elicitation(heading, mode)
        words = form_answers(form, getattr(answer, "content", None))
        return Answer(bool(words), words=words)

    async def choose(self, text: str, choices: Sequence[tuple[str, str]]) -> str:
        """Ask a command's question, and return the ID of the choice, "" for none."""
        async with self._turn:
            question = Question("Command", text.partition("\n")[0], {}, "", text)
            offered = [
                _choice(id, name, "allow_once", Answer(True, words=[id])) for id, name in choices
            ]
            try:
                answer = await self._put(question, offered, text)
            except (RequestError, ConnectionError):
                return ""
            return answer.words[0] if answer.words else ""

    async def _choose(self, question: Question, form: FormQuestion) -> Sequence[str]:
        """Return the labels that the user chooses, one by one if several are allowed; empty if the
        user declines to answer.
        """
        taken = list[str]()
        while len(taken) < len(form.choices):
            choices = [
                _choice(f"choice-{place}", f"{label} — {means}" if means else label, "allow_once",
                        Answer(True, words=[label]))
                for place, (label, means) in enumerate(form.choices)
                if label not in taken
            ]  # fmt: skip
            if taken:
                choices.append(_choice(DONE, "That is all", "allow_once", Answer(True)))
            choices.append(_choice(NO, "No answer", "reject_once", Answer(False)))
            so_far = f"\n\nSo far: {', '.join(taken)}" if taken else ""
            answer = await self._put(question, choices, f"{form.text}{so_far}")
            if not answer.allow:
                return []
            taken += answer.words
            if not (form.multiple and answer.words):
                break
        return taken

    async def _put(self, question: Question, choices: Sequence[Choice], text: str) -> Answer:
        """Ask a question, and return the answer of the chosen option, or the answer that settles it
        meanwhile. "cancelled" from the editor declines.
        """
        id = self._updates.ask(question)
        diffs = diff_contents(question.diff, question.input.get("path"), self._updates.cwd)
        call = ToolCallUpdate(
            tool_call_id=id,
            title=title_of_call(question.tool, question.title),
            kind=kind_of(question.tool),
            raw_input=dict(question.input) or None,
            content=[*text_contents(text), *diffs],
        )
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[Answer] = loop.create_future()
        options = [option for option, _ in choices]
        asking = asyncio.ensure_future(
            self._client.request_permission(
                session_id=self._session(), tool_call=call, options=options
            )
        )
        self._open, answer = (question, settled), Answer(False)
        try:
            waiting: set[asyncio.Future[Any]] = {asking, settled}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if settled.done():
                answer = settled.result()
            elif isinstance(outcome := asking.result().outcome, AllowedOutcome):
                by_id = {option.option_id: each for option, each in choices}
                answer = by_id.get(outcome.option_id, answer)
        finally:
            self._open = None
            asking.cancel()
            self._updates.end_question(question, id, allowed=answer.allow)
        return answer


def _choice(id: str, name: str, kind: PermissionOptionKind, answer: Answer) -> Choice:
    return PermissionOption(option_id=id, name=name, kind=kind), answer
