"""Questions to the user, one at a time: permission questions, plan approvals, and questions from
commands.

A plan is rendered and can be edited. The answer is a permission mode, or a refusal.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from ....tools.system.phrasing import count_of, cut_after
from ....tools.system.unicode import clean, reveal_invisible
from ...config.keyboard import key_name
from ...errors import CtxagentError, UsageError
from ...events import Answer, FormQuestion, Notice, Question
from ..screen import BACK, ChoiceRow, Screen
from ..tasks import SessionTask

if TYPE_CHECKING:
    from ...config.settings import PermissionMode
    from ...permissions.rule_set import RuleFiles, RulesFile
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


SESSION = "session"  # where a rule is kept: in the session only
MIN_REPEATED_LINES = 12  # a question of this many lines may have scrolled away
MAX_TITLE_CHARS = 60  # of a task; also the line width assumed for a question
USER_PREFIXES = ("!", "#")  # prefixes of a shell command and of a note
MAX_REMINDER_CHARS = 200  # of the reminder above the choices
MAX_ONE_KEY_CHARS = 48  # longest description of a rule that one key accepts
MAX_ONE_KEY_RULE_CHARS = 120  # longest such rule
BUSY_CHOICES = "[r]ead only · [f]ork: continue in a copy · [w]ait · [l]eave"
LEAVE_CHOICES = "[y]es, leave and end {them} · [n]o, stay"
MAX_LISTED_TASKS = 5
BUSY_ANSWERS = ("read", "fork", "wait", "leave")  # the first letter is accepted too


async def ask_rule(screen: Screen, question: Question, files: "RuleFiles | None") -> Answer | None:
    """Ask for a rule and where to save it, save it there, and return an answer with both. Returns
    None if the user went back. Without `files`, rules apply to the session only.
    """
    from ...permissions.rules import parse_rule

    typed, problem = question.offers[0], ""
    while True:
        others = [rule for rule in question.offers if rule != typed]
        typed = await screen.answer(partial(_rule_prompt, problem), BACK, [typed, *others])
        if typed == BACK:
            return None
        problem = ""
        try:
            rule = str(parse_rule(typed))
            objection = question.check(rule)
        except UsageError as error:
            problem = _error_lines(error)
            continue
        if objection and not await _confirm_broad_rule(screen, rule, objection):
            continue
        where = await _save_rule(screen, rule, files) if files else SESSION
        if where:
            return Answer(True, rule=rule, where=where)


async def _confirm_broad_rule(screen: Screen, rule: str, objection: str) -> bool:
    text = f"{rule} is a broad rule: {objection}.\nSave this rule anyway? [y]es · [n]o, change it"
    answer = await screen.answer(lambda typed: text, f"yn{BACK}")
    return answer.strip().lower() in ("y", "yes")


async def ask_sandboxed(screen: Screen, files: "RuleFiles | None") -> Answer | None:
    """Ask for how long sandboxed commands may run without a question, and return the answer; None
    if the user went back.
    """
    if files is None:
        return Answer(True, sandboxed=True, where=SESSION)
    user = f"for you, in every project: {files.describe_file('user')}"
    where = await _choose_place(
        screen,
        "Sandboxed commands run without a question. For how long?",
        {SESSION: "for this session only", "user": user},
        lambda file: files.allow_sandboxed(),
    )
    return Answer(True, sandboxed=True, where=where) if where else None


async def _save_rule(screen: Screen, rule: str, files: "RuleFiles") -> str:
    """Ask where to save a rule, save it there, and return the place; "" to go back."""
    from ...permissions.suggestions import describe_rule

    places: dict[str, str] = {SESSION: "for this session only"}
    places |= {where: _describe(where, files.describe_file(where), rule) for where in files.paths}
    title = f"{rule}: always allow {describe_rule(rule)}. Save this rule where?"
    return await _choose_place(screen, title, places, lambda file: files.add(rule, file))


async def _choose_place(
    screen: Screen, title: str, places: dict[str, str], write: "Callable[[RulesFile], str]"
) -> str:
    """Ask for a place, call `write` for its file, and return the place; "" to go back."""
    problem = ""
    while True:
        rows = [
            ChoiceRow(name[0], f"[{name[0]}]{name[1:]:<7} {what}") for name, what in places.items()
        ]
        prompt = partial(_place_prompt, title, problem)
        answer = (await screen.answer(prompt, BACK, rows=rows)).lower()
        if answer == BACK:
            return ""
        place = next((p for p in places if answer.strip() in (p, p[0])), "")
        if place == SESSION:
            return SESSION
        if not place:
            continue
        file: RulesFile = "project" if place == "project" else "user"
        try:
            return await asyncio.to_thread(write, file)
        except CtxagentError as error:
            problem = _error_lines(error)
            del places[place]


def _rule_prompt(problem: str, typed: str) -> str:
    from ...permissions.suggestions import describe_rule

    meaning = describe_rule(typed)
    lines = [problem] if problem else []
    if meaning or not problem:
        lines.append(f"Always allow {meaning}?" if meaning else "Not a complete rule yet")
    return "\n".join(lines)


def _place_prompt(title: str, problem: str, typed: str) -> str:
    return "\n".join(filter(None, [problem, title]))


def _describe(where: str, path: str, rule: str) -> str:
    """Describe a settings file as a place to save a rule."""
    if where == "project":
        return f"for everyone who works on this project: {path}"
    from ...permissions.rules import parse_rule

    paths = ", paths relative to each project" if parse_rule(rule).relative else ""
    return f"for you, in every project{paths}: {path}"


def _error_lines(error: CtxagentError) -> str:
    return f"✗ {error.message}" + (f"\n  {error.hint}" if error.hint else "")


class Questions:
    """The questions shown on a screen, one after another.

    A waiting question is not shown if the answer to the previous question already answers it.
    """

    def __init__(
        self,
        screen: Screen,
        transcript: "Callable[[], Transcript]",
        set_mode: "Callable[[PermissionMode], None]",
        take_command: Callable[[str], bool],  # runs a slash command; False for other text
        submit: Callable[[str], None],  # submits a `!` command or a `#` note
        files: "RuleFiles | None" = None,  # settings files for rules
    ) -> None:
        self.always_yes = False  # whether every answer is yes, without asking
        # The permission mode offered during a permission question.
        self.offered_mode: PermissionMode | None = None
        self.asks_permission = False
        self._told_of_sandbox = False
        self._screen = screen
        self._transcript = transcript
        self._set_mode = set_mode
        self._take_command = take_command
        self._submit = submit
        self._files = files
        self._turn = asyncio.Lock()

    async def choose(self, choices: str, keys: str) -> str:
        """Ask a command's question and return the answer. A key of `keys` answers at once."""
        async with self._turn:
            if self.always_yes:
                return "y"
            return await self._screen.answer(lambda typed: choices, keys)

    async def secret(self, text: str) -> str:
        """Ask for a text that is hidden while typed, and return it; BACK if the user goes back."""
        async with self._turn:
            return await self._screen.answer(lambda typed: text, BACK, hidden=True)

    async def choose_row(self, text: str, rows: Sequence[ChoiceRow]) -> ChoiceRow | None:
        """Ask the user to choose one of the rows, and return it; None for any other answer."""
        async with self._turn:
            answer = await self._screen.answer(lambda typed: text, BACK, rows=rows)
        return next((row for row in rows if row.key == answer.strip().lower()), None)

    async def end_tasks(self, tasks: Sequence[SessionTask]) -> bool:
        """Ask whether to leave although that stops these tasks."""
        kinds = {task.kind for task in tasks}
        what = kinds.pop() if len(kinds) == 1 else "task"
        them = f"this {what}" if len(tasks) == 1 else f"these {len(tasks)} {what}s"
        lines = [_task_line(task) for task in tasks[:MAX_LISTED_TASKS]]
        if more := len(tasks) - MAX_LISTED_TASKS:
            lines += [f"… +{more} more"] if more > 0 else []
        prompt = "\n".join([LEAVE_CHOICES.format(them=them), *lines])
        return (await self.choose(prompt, f"yn{BACK}")).strip().lower() in ("y", "yes")

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self._turn.locked()

    async def busy_session(self) -> str:
        """Ask what to do with a session that is in use. Return one of `BUSY_ANSWERS`."""
        keys = "".join(word[0] for word in BUSY_ANSWERS)
        while not self.always_yes:
            answer, _, _ = (await self.choose(BUSY_CHOICES, keys)).strip().lower().partition(" ")
            if answer in ("n", "no"):
                break
            if word := next((word for word in BUSY_ANSWERS if answer in (word, word[0])), ""):
                return word
        return "leave"

    async def permission(self, question: Question) -> Answer:
        """Ask whether a tool may run."""
        from ..render import tool_calls

        transcript = self._transcript()
        transcript.waits_for_answer(question, True)
        try:
            async with self._turn:
                if question.form:
                    return await self._ask_form(question)
                if question.plan:
                    return await self._ask_plan_approval(question)
                answer = question.settled()
                if answer is None:
                    transcript.ask(question, explains=not self._told_of_sandbox)
                    answer = Answer(True) if self.always_yes else await self._put(question)
                    self._screen.put(tool_calls.answer(answer))
                return answer
        finally:
            transcript.waits_for_answer(question, False)

    async def _ask_form(self, question: Question) -> Answer:
        """Ask the questions of a form in order. Esc goes back; at the first question it cancels."""
        answers: list[str] = []
        while len(answers) < len(question.form):
            place, asked = len(answers), question.form[len(answers)]
            several = f" ({place + 1} of {len(question.form)})" if len(question.form) > 1 else ""
            rows = [] if asked.multiple else _form_rows(asked)
            prompt = partial(_form_prompt, asked, several)
            said = (await self._screen.answer(prompt, BACK, rows=rows)).strip(" \t\n")
            if said == BACK:
                if not answers:
                    return Answer(False)
                answers.pop()
            elif said:
                answers.append(_chosen(asked, said))
                told = f"{clean(asked.text)} {clean(answers[-1])}"
                self._transcript().show(Notice("info", told))
        return Answer(True, words=answers)

    async def _ask_plan_approval(self, question: Question) -> Answer:
        """Ask the user to approve a plan."""
        from ..render import tool_calls

        answer = Answer(True)
        if not self.always_yes:
            answer = await ask_plan_approval(self._screen, self._transcript(), question)
        self._screen.put(tool_calls.answer(answer))
        return answer

    async def _put(self, question: Question) -> Answer:
        shown_at = self._screen.printed
        rows, self.asks_permission = permission_rows(question), True
        choices, keys = partial(self._choices, question, shown_at), "r" * bool(question.offers)
        try:
            while True:
                line = await self._screen.answer(choices, keys, rows=rows)
                answer = await self._answer(question, line)
                if answer is not None:
                    return answer
        finally:
            self.asks_permission, self.offered_mode = False, None
            self._told_of_sandbox = self._told_of_sandbox or question.may_be_sandboxed

    async def _answer(self, question: Question, line: str) -> Answer | None:
        """Return the answer for a typed line; None if the question must be asked again."""
        if line == BACK:
            return Answer(False)
        word = _only_word(line)
        if line.strip()[:1] in USER_PREFIXES:  # not a refusal
            self._submit(line.strip())
            return None
        if line.strip().startswith("/") and self._take_command(line.strip()):
            await asyncio.sleep(0)  # let its output appear above the question
            return question.settled()
        mode = self.offered_mode if not word else None
        if word in ("e", "edits") and question.may_accept_edits:
            mode = "accept-edits"
        if mode is not None:
            self._set_mode(mode)
            self.offered_mode = None
            return question.settled()
        if word in ("s", "sandbox", "sandboxed") and question.may_be_sandboxed:
            return await ask_sandboxed(self._screen, self._files)
        if word in ("a", "always") and _one_key_rule(question):
            return Answer(True, rule=question.offers[0], where=SESSION)
        if word in ("a", "always", "r", "rule", "rules") and question.offers:
            return await ask_rule(self._screen, question, self._files)
        return parse_answer(line)

    def _choices(self, question: Question, shown_at: int, typed: str) -> str:
        """Return the choices, after a reminder of the question if it may have scrolled away. On a
        short screen, the changed lines of an edit follow.
        """
        short = self._screen.is_short and bool(question.diff)
        moved = short or self._screen.printed > shown_at or self._screen.unfinished
        lines = [*filter(None, [reminder_of(question, always=moved), permission_choices(typed)])]
        if self.offered_mode is not None:
            next_mode = key_name(self._screen.keys.cycle_mode)
            lines.append(
                f"mode {self.offered_mode}? Enter: use it, also here · {next_mode}: next mode"
            )
        if short and not typed:
            lines += changed_lines(question)
        return "\n".join(lines)


def _task_line(task: SessionTask) -> str:
    title = cut_after(clean(reveal_invisible(task.what)), MAX_TITLE_CHARS)
    return f"{task.id} has been running for {task.seconds or 0:.0f} s: {title}"


def _one_key_rule(question: Question) -> str:
    """Return the description of the first suggested rule; "" if the rule is long or broad, because
    one key must not accept such a rule.
    """
    from ...permissions.suggestions import EXACTLY, describe_rule

    if not question.offers:
        return ""
    rule = question.offers[0]
    with suppress(UsageError):
        meaning = describe_rule(rule)
        if question.check(rule) or len(meaning) > MAX_ONE_KEY_CHARS:
            return ""
        if meaning == EXACTLY:
            return meaning
        return f"{meaning}: {rule}" if len(rule) <= MAX_ONE_KEY_RULE_CHARS else ""
    return ""


def permission_rows(question: Question) -> list[ChoiceRow]:
    """Return a row for each choice."""
    rows = [ChoiceRow("y", "[y]es")]
    always = _one_key_rule(question)
    if always:
        again = f"don't ask again for {always}"
        rows.append(ChoiceRow("a", f"[a] yes, and {again}", short=f"[a] {again}"))
    elif question.offers:
        rows.append(ChoiceRow("a", "[a] yes, and don't ask again: choose a rule"))
    if question.may_accept_edits:
        edits = "allow all edits in this session"
        rows.append(ChoiceRow("e", f"[e] yes, and {edits}", short=f"[e] {edits}"))
    if question.may_be_sandboxed:
        sandboxed = "don't ask again for sandboxed commands"
        rows.append(
            ChoiceRow("s", f"[s] yes, and {sandboxed}", short="[s] don't ask where sandboxed")
        )
    if always:
        rows.append(ChoiceRow("r", "[r] choose another rule, or save it"))
    short = "[n]o, and say what to do instead"
    return [*rows, ChoiceRow("n", "[n]o, and tell it what to do instead", short, reply_prefix="n ")]


def permission_choices(typed: str) -> str:
    """Return the effect of the refusal being typed; "" for any other text."""
    answer = None if typed.strip()[:1] in ("/", *USER_PREFIXES) else parse_answer(typed)
    if answer is None or answer.allow:
        return ""
    return "no; the model gets this text" if answer.reason else "no · say why, or press Enter"


def reminder_of(question: Question, *, always: bool = False) -> str:
    """Return a one-line reminder of a question that is long enough to have scrolled away; "" for a
    short one. `always` returns a reminder for any question.
    """
    lines = (question.diff or "\n".join(map(str, question.input.values()))).split("\n")
    if not always and sum(1 + len(line) // MAX_TITLE_CHARS for line in lines) < MIN_REPEATED_LINES:
        return ""
    command = str(question.input.get("command", question.title))
    named = question.causes[0][0] if question.causes else ""
    several = "\n" in command.strip() or len(command) > MAX_REMINDER_CHARS
    of_several = several and bool(named)
    text = question.title if question.diff else named if of_several else command
    subject = cut_after(clean(reveal_invisible(" ".join(text.split()))), MAX_REMINDER_CHARS)
    if not question.diff:
        size = f" (in {count_of(len(lines), 'line')})" if of_several else ""
        return f"{question.tool} {subject}{size}"
    changed = changed_lines(question)
    added, removed = (sum(line.startswith(mark) for line in changed) for mark in "+-")
    return f"{question.tool} {subject} (+{added:,} −{removed:,})"


def changed_lines(question: Question) -> list[str]:
    """Return the removed and added lines of an edit in pairs, so that the first show both."""
    lines = clean(reveal_invisible((question.diff or "").replace("\r\n", "\n"))).split("\n")
    removed, added = ([x for x in lines[2:] if x.startswith(mark)] for mark in "-+")
    return [line for pair in zip_longest(removed, added) for line in pair if line]


def _form_prompt(asked: FormQuestion, several: str, typed: str) -> str:
    """Return the text of a form question, with numbered choices if several may be selected."""
    lines = [f"{clean(reveal_invisible(asked.text))}{several}"]
    if asked.multiple:
        lines += [f"[{row.key}] {row.label}" for row in _form_rows(asked)]
        lines.append("numbers such as 1 3, or your answer" if asked.choices else "type your answer")
    elif not typed:
        lines.append("choose, or type your answer" if asked.choices else "type your answer")
    return "\n".join(lines)


def _form_rows(asked: FormQuestion) -> list[ChoiceRow]:
    rows = []
    for number, (label, means) in enumerate(asked.choices, 1):
        text = f"{label} — {means}" if means else label
        rows.append(ChoiceRow(str(number), clean(reveal_invisible(" ".join(text.split())))))
    return rows


def _chosen(asked: FormQuestion, said: str) -> str:
    """Return the answer for a line: the choices with the numbers in it, or the line itself."""
    numbers = said.replace(",", " ").split()
    if not (asked.multiple or len(numbers) == 1):
        return said
    if not all(n.isdecimal() and 0 < int(n) <= len(asked.choices) for n in numbers):
        return said
    return ", ".join(asked.choices[int(n) - 1][0] for n in numbers)


def parse_answer(text: str) -> Answer | None:
    """Return the answer for a typed line; None if the question must be asked again.

    Text that matches no choice is a refusal with a reason, never a permission.
    """
    first, _, rest = text.strip().partition(" ")
    word = first.lower().rstrip(",.:;")
    if not word or _only_word(text) in ("a", "always", "e", "r", "s"):
        return None
    if word in ("n", "no"):
        return Answer(False, reason=rest.strip())
    if word in ("y", "yes") and not rest:
        return Answer(True)
    return Answer(False, reason=text.strip())


def _only_word(text: str) -> str:
    return text.strip().lower().rstrip(",.:;")
