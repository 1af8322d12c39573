"""The skills of a conversation: the list for the model, and the loaded texts.

Everything is in the log, so resumed, copied and rewound sessions have it. An entry of source
SKILL_LIST lists the skills: all at the start and after a summary, later only changes. An entry of
source SKILL is the text of a skill. No layer clears it, and it is inserted again after a summary as
it was recorded.
"""

import asyncio
import difflib
import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ...tools.base import Output, Tool
from ...tools.skill import SkillParams, SkillTool
from ...tools.system.files import make_private_folder, replace_file
from ...tools.system.phrasing import count_of, one_line
from ..compaction.layers.move import file_name
from ..compaction.summary.request import first_tokens
from ..context.tokens import estimate
from ..context.view import View
from ..errors import ToolError
from ..events import Notice
from ..extensions.plugins import part_named
from ..extensions.skills import Skill, load_skills
from ..launch import LaunchOptions
from ..lazy import dataclass, regex
from ..loop.interface import Feature, IncomingMessage, Turn
from ..loop.live_session import LiveSession
from ..session.archive import offload
from ..session.entries import SKILL, SKILL_LIST, Entry, User
from ..session.ledger import SkillFact

LIST_SHARE = 0.02  # of the window, for the list of skills
SKILL_SHARE = 0.05  # of the window, for the text of one skill
ALL_SKILLS_SHARE = 0.15  # of the window, for all texts inserted after a summary
MIN_TEXT_TOKENS = 200  # of a cut text; with less room the text is left out
MAX_PATH_CHARS = 300
USES_FILE = "skill_uses.json"  # in the state folder: when each skill was last loaded

_LIST_HEAD = (
    "Skills, which are instructions for certain work. Where one fits the task, load it with the "
    f"tool {SkillTool.name} before you begin."
)
_LISTS_ALL = f"{SkillTool.name} without a name lists all."
_MORE = "{more}, used longest ago, not shown here: " + _LISTS_ALL
_CHANGED = "Skills that are new or have changed:"
_GONE = "Skills that are no longer there: {names}."
_HEAD = "[The skill {name}. Relative paths in it count from {folder}."
_ARGUMENTS = " $ARGUMENTS in it stands for what the user wrote behind /{name}.]"
_AGAIN = (
    "[The skill {name}, loaded in #{ref}, still holds. This is no new request: what it was loaded "
    "for is not to be done again. Relative paths in it count from {folder}.]"
)
_CUT = ("[cut here: {left} more characters of this skill", "; {Recall} #{ref} has all of it", "]")
_LEFT_OUT = ("[its text is left out for want of room", "; {Recall} #{ref} has it", "]")
_STANDS = "The skill {name} stands in the context already, as #{ref}."
_CALLED_AGAIN = "[The user calls the skill {name} again, which stands above as #{ref}.]"

_CALL = regex(r"/(\S+)")

Find = Callable[[], tuple[dict[str, Skill], list[str]]]


def skills_of(launch: LaunchOptions) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills for these options, and a warning for each that was left out. Blocks."""
    if launch.extras.safe or "skills" in launch.settings.features.off:
        return {}, []
    return load_skills(
        launch.places.cwd,
        config_home=launch.places.config_home,
        home=launch.places.home,
        trust_dir=launch.places.trust_dir,
        plugins=[plugin.folder for plugin in launch.extras.plugins],
    )


class SkillUses:
    """The time of the last load of each skill, in any session. It sets the order of lists."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / USES_FILE

    def read(self) -> Mapping[str, float]:
        """Return the Unix times by name, or {} for an unreadable file."""
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        times = found.items() if isinstance(found, dict) else ()
        return {name: float(at) for name, at in times if isinstance(at, int | float)}

    def note(self, name: str) -> None:
        """Record that a skill is loaded now. Ignore a failed write."""
        uses = {**self.read(), name: time.time()}
        with suppress(OSError):
            make_private_folder(self._path.parent)
            replace_file(self._path, json.dumps(uses, indent=1).encode(), durable=False)


@dataclass(frozen=True, slots=True)
class SkillSource:
    """The source of a conversation's skills."""

    find: Find = lambda: ({}, [])  # reads all files
    known: Mapping[str, Skill] = field(default_factory=dict)  # result of the last `find`
    warnings: Sequence[str] = ()  # warnings of the last `find`
    uses: SkillUses | None = None


def find_skills(launch: LaunchOptions) -> tuple[SkillSource, list[str]]:
    """Return the source of a session's skills, and a warning for each skill that was left out."""
    known, warnings = skills_of(launch)
    source = SkillSource(
        partial(skills_of, launch), known, warnings, SkillUses(launch.places.state)
    )
    return source, warnings


class SkillsFeature(Feature):
    """The skills of a conversation."""

    name = "skills"

    def __init__(self, session: LiveSession, source: SkillSource) -> None:
        super().__init__(session)
        self.source = source
        self.known = source.known
        self._shown_warnings = set(source.warnings)
        self._requested: list[Skill] = []  # requested by the model, not recorded yet
        self._is_fresh = True  # whether `known` was just read

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Skill if there are skills. A session keeps the tool it started with."""
        names = (tool.get("name") for tool in self.session.view.tools)
        has_skills = bool(self.known) or SkillTool.name in names
        return [SkillTool(self.request)] if has_skills else []

    def request(self, name: str | None) -> Output:
        """Request the text of a skill, to be recorded after the results of this reply. Without a
        name, return the list of skills. Raises ToolError.
        """
        if not (name or "").strip():
            lines = [skill.line for skill in self._listed()]
            return Output("\n".join(lines) or "There are no skills.")
        name = str(name).strip().removeprefix("/")
        skill = part_named(self.known, name) or self.known.get(name.rpartition(":")[2])
        if skill is None:
            near = difflib.get_close_matches(name, [each.name for each in self._listed()], 1)
            meant = f" Is {near[0]} meant?" if near else ""
            raise ToolError(f"There is no skill {name[:100]!r}.{meant} {_LISTS_ALL}")
        name = skill.name
        if not skill.for_model:
            raise ToolError(f"The skill {name} is for people: the user loads it with /{name}.")
        if ref := self._seq_of_whole_text(skill):
            return Output(_STANDS.format(name=name, ref=ref))
        if skill not in self._requested:
            self._requested.append(skill)
        return Output(f"The skill {name} follows.", {"skill": _details(skill)})

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Load the skill that a message calls with `/NAME` at its start."""
        text = message.content
        called = _CALL.match(text) if isinstance(text, str) and not message.verbatim else None
        if called is None:
            return
        self.known, _ = await asyncio.to_thread(self.source.find)
        skill = part_named(self.known, called[1])
        if skill is not None and skill.for_user:
            self._load(skill.name)

    async def turn_started(self, turn: Turn) -> None:
        """Read the files again and record changes of the skills."""
        self._record_requested()
        warnings = list[str]()
        if not self._is_fresh:
            self.known, warnings = await asyncio.to_thread(self.source.find)
        self._is_fresh = False
        for warning in warnings:
            if warning not in self._shown_warnings:
                self._shown_warnings.add(warning)
                self.session.emit(Notice("warning", warning))
        for entry in self._changes():
            self.session.record(entry)

    async def step_finished(self) -> None:
        """Record the texts that the model requested."""
        self._record_requested()

    def recorded(self, entry: Entry) -> None:
        """Warn the user about a text that was shortened after a summary."""
        skill = entry.details.get("skill") if isinstance(entry, User) else None
        if isinstance(skill, dict) and skill.get("is_part"):
            told = f"the skill {skill['name']} is cut after the summary: all skills take at most"
            again = f"Recall #{skill['ref']} has it, /{skill['name']} loads it again"
            self.session.emit(
                Notice("warning", f"{told} {ALL_SKILLS_SHARE:.0%} of the window; {again}")
            )

    def _record_requested(self) -> None:
        """Record the texts that the model requested. Raises RecordError."""
        while self._requested:
            self._record(self._requested[0], by_user=False)
            del self._requested[0]

    def _load(self, name: str) -> None:
        """Record the text of a skill that the user called. Raises RecordError."""
        skill = self.known[name]
        if ref := self._seq_of_whole_text(skill):
            text = _CALLED_AGAIN.format(name=name, ref=ref)
            self.session.record(User(content=text, source="notice"))
        else:
            self._record(skill, by_user=True)

    def first_entries(self) -> list[Entry]:
        """Return the list of skills, and texts that a kill prevented from being inserted after a
        summary. A text that was never recorded is recorded at the next turn.
        """
        self._requested += self._unrecorded()
        view, facts = self.session.view, self.session.ledger.skills.values()
        missing = [
            fact for fact in facts if (fact.name, fact.digest) not in self.texts_in_context()
        ]
        entries: list[Entry] = self._reinserted_texts(missing, present=0)
        if self._skills_in_context(view) is None:
            return [*self._whole_list(), *entries]
        return [*self._changes(), *entries]

    def reinserted(self, staying: Collection[int]) -> list[Entry]:
        """Return the list and the texts that are not among the entries `staying`."""
        view, present, room = self.session.view, set[tuple[str, str]](), 0
        for item in view.items:
            if item.source == SKILL and item.seq in staying:
                present.add(_key(view.facts(item)[0]))
                room += item.size
        facts = self.session.ledger.skills.values()
        missing = [fact for fact in facts if (fact.name, fact.digest) not in present]
        listed = any(item.source == SKILL_LIST and item.seq in staying for item in view.items)
        return [
            *([] if listed else self._whole_list()),
            *self._reinserted_texts(missing, present=room),
        ]

    def _unrecorded(self) -> list[Skill]:
        """Return the skills that the model requested but whose text was never recorded."""
        view, facts = self.session.view, self.session.ledger.skills
        asked: dict[str, int] = {}
        for item in view.items:
            if item.source != SKILL and "skill" in (details := view.facts(item)[0]):
                asked[_key(details)[0]] = item.seq
        return [
            self.known[name]
            for name, seq in asked.items()
            if name in self.known and (name not in facts or facts[name].ref < seq)
        ]

    def _record(self, skill: Skill, *, by_user: bool) -> None:
        """Record the text of a skill. Allow calls by its rules until the turn ends."""
        session = self.session
        seq = session.log.last_seq + 1
        head = _HEAD.format(name=skill.name, folder=_shown(skill.folder))
        head += _ARGUMENTS.format(name=skill.name) if by_user and "$" in skill.body else "]"
        text = session.log.redact(User(content=f"{head}\n\n{skill.body}", source=SKILL)).content
        assert isinstance(text, str)
        shown, offloaded = self._cut(text, int(SKILL_SHARE * self._window), seq), None
        details: dict[str, Any] = {"skill": _details(skill)}
        if shown != text:
            path = session.folder / "offloaded" / file_name("skill", seq, datetime.now())
            try:
                offload(path, text)
                offloaded = str(path.relative_to(session.folder))
            except OSError as error:
                told = f"the skill {skill.name} is cut, and its full text cannot be saved in {path}"
                session.emit(Notice("warning", f"{told}: {error.strerror}"))
            saved = estimate(text) - estimate(shown)
            details["tokens_saved"] = saved
            told = f"the skill {skill.name} is cut by {saved:,} tokens: one skill takes at most"
            session.emit(Notice("warning", f"{told} {SKILL_SHARE:.0%} of the window"))
        session.record(User(content=shown, source=SKILL, details=details, offloaded=offloaded))
        session.emit(Notice("info", f"skill {skill.name}, {estimate(shown):,} tokens"))
        session.allow_for_turn(skill.allowed_tools, f"skill {skill.name}")
        if self.source.uses:
            self.source.uses.note(skill.name)

    def _reinserted_texts(self, facts: Iterable[SkillFact], *, present: int) -> list[Entry]:
        """Return the texts to insert again, within the limits per text and for all texts. The most
        recently loaded are cut last. `present` is the size of the texts still in the view.
        """
        room, entries = int(ALL_SKILLS_SHARE * self._window) - present, list[Entry]()
        for fact in reversed([fact for fact in facts if fact.ref]):
            found = self.session.context.recall(fact.ref)
            if found is None:
                continue
            body = found.whole().partition("\n\n")[2]
            head = _AGAIN.format(
                name=fact.name, ref=fact.ref, folder=_shown(Path(fact.path).parent)
            )
            share = int(SKILL_SHARE * self._window)
            most, whole = min(room, share), f"{head}\n\n{body}"
            text = self._cut(whole, most, fact.ref)
            if most < MIN_TEXT_TOKENS and estimate(text) > most:
                left_out = self.session.context.offered.say(*_LEFT_OUT, ref=fact.ref)
                text = f"{head}\n\n{left_out}"
            room = max(0, room - estimate(text))
            details: dict[str, Any] = {
                "name": fact.name, "path": fact.path, "digest": fact.digest, "ref": fact.ref,
            }  # fmt: skip
            if most < share and text != whole:
                details["is_part"] = True
            entries.append(User(content=text, source=SKILL, details={"skill": details}))
        return entries[::-1]

    def _cut(self, text: str, room: int, ref: int) -> str:
        """Return a text, cut to `room` tokens with a note about the rest."""
        if estimate(text) <= room:
            return text
        say = self.session.context.offered.say
        note = say(*_CUT, left=f"{len(text):,}", ref=ref)
        kept = first_tokens(text, max(1, room - estimate(note)))
        return f"{kept}\n{say(*_CUT, left=f'{len(text) - len(kept):,}', ref=ref)}"

    def _whole_list(self) -> list[Entry]:
        """Return the list of skills within its limit, most recently loaded first. Return [] if
        there are none or the model cannot load any.
        """
        skills, shown = self._listed(), list[str]()
        if not skills:
            return []
        room = int(LIST_SHARE * self._window) - estimate(_LIST_HEAD) - estimate(_MORE)
        for skill in skills:
            room -= estimate(skill.line) + 1
            if room < 0:
                break
            shown.append(skill.line)
        lines = [_LIST_HEAD, *shown]
        if more := len(skills) - len(shown):
            lines.append(_MORE.format(more=count_of(more, "skill")))
        details = {"skills": {skill.name: _line_digest(skill) for skill in skills}, "whole": True}
        return [User(content="\n".join(lines), source=SKILL_LIST, details=details)]

    def _changes(self) -> list[Entry]:
        """Return the changes of the skills since the model's last list."""
        told = self._skills_in_context(self.session.view)
        skills = {skill.name: skill for skill in self._listed()}
        if told is None:
            return self._whole_list()
        changed = [skill for name, skill in skills.items() if told.get(name) != _line_digest(skill)]
        gone = [name for name in told if name not in skills]
        lines, marks = list[str](), dict[str, str | None](dict.fromkeys(gone))
        if changed:
            lines += [_CHANGED, *(skill.line for skill in changed)]
            marks |= {skill.name: _line_digest(skill) for skill in changed}
        if gone:
            lines.append(_GONE.format(names=", ".join(gone)))
        if not lines:
            return []
        room = int(LIST_SHARE * self._window)
        text = self._cut_list("\n".join(lines), room)
        return [User(content=text, source=SKILL_LIST, details={"skills": marks})]

    def _cut_list(self, text: str, room: int) -> str:
        if estimate(text) <= room:
            return text
        return f"{first_tokens(text, room)}…\n{_LISTS_ALL}"

    def _listed(self) -> list[Skill]:
        """Return the skills that the model may load, most recently loaded first."""
        if not any(isinstance(tool, SkillTool) for tool in self.session.tools):
            return []
        uses = self.source.uses.read() if self.source.uses else {}
        approval, tool = self.session.approval, SkillTool()
        found = [
            skill
            for skill in self.known.values()
            if skill.for_model
            and approval.judge(tool, SkillParams(name=skill.name)).action != "deny"
        ]
        return sorted(found, key=lambda skill: (-uses.get(skill.name, 0.0), skill.name))

    def _skills_in_context(self, view: View) -> dict[str, str] | None:
        """Return the skills in the model's list, or None if the view has no list."""
        told: dict[str, str] | None = None
        for item in view.items:
            details = view.facts(item)[0] if item.source == SKILL_LIST else {}
            marks = details.get("skills")
            if not isinstance(marks, dict):
                continue
            if details.get("whole") or told is None:
                told = {}
            for name, mark in marks.items():
                if mark is None:
                    told.pop(name, None)
                else:
                    told[name] = str(mark)
        return told

    def texts_in_context(self) -> dict[tuple[str, str], int]:
        """Return the seq of the entry with the newest text of each skill, by name and digest. A
        text that was cut after a summary counts.
        """
        view = self.session.view
        newest = {_key(view.facts(item)[0])[0]: item for item in view.items if item.source == SKILL}
        return {_key(view.facts(item)[0]): item.seq for item in newest.values()}

    def _seq_of_whole_text(self, skill: Skill) -> int:
        """Return the seq of the entry with the current text of a skill, or 0 if it is missing or
        was cut after a summary.
        """
        ref = self.texts_in_context().get((skill.name, skill.digest), 0)
        place = self.session.view.position(ref)
        details = (
            {} if place is None else self.session.view.facts(self.session.view.items[place])[0]
        )
        return 0 if details.get("skill", {}).get("is_part") else ref

    @property
    def _window(self) -> int:
        return self.session.model.current_window().size


def _details(skill: Skill) -> dict[str, str]:
    return {"name": skill.name, "path": str(skill.path), "digest": skill.digest}


def _key(details: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and digest of a skill from the details of an entry."""
    found = details.get("skill")
    found = found if isinstance(found, dict) else {}
    return str(found.get("name")), str(found.get("digest"))


def _line_digest(skill: Skill) -> str:
    """Return a digest of a line of the list."""
    return hashlib.sha256(skill.line.encode(errors="replace")).hexdigest()[:12]


def _shown(folder: Path) -> str:
    return one_line(str(folder), MAX_PATH_CHARS)
