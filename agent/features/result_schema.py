"""`--json-schema FILE`: the final answer of a turn is JSON that fits a schema.

A message gives the schema to the model, and again after a summary removed it. If an answer does not
fit, the model gets the problems and tries again, for `MAX_TRIES` answers in total. Schemas are JSON
Schema, draft 2020-12 unless they name another draft. References are never fetched.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...tools.system.phrasing import shorten
from ..errors import ResultError, UsageError
from ..lazy import dataclass, regex
from ..loop.interface import Feature, Turn
from ..loop.live_session import LiveSession
from ..models.base import Reply, text_of
from ..session.entries import User
from ..session.store import content_text

MAX_SCHEMA_BYTES = 100_000
MAX_TRIES = 2  # answers of one turn
MAX_PROBLEMS = 5  # listed in the request for another answer
MAX_PROBLEM_CHARS = 300
NOTICE = "notice"  # source of entries written by the program

_FENCED = regex(r"```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_INSTRUCTION = """\
[The final answer of this turn is read by a program. It must be one JSON document that validates \
against the schema below, alone: no words before or after it. Use your tools as always; only the \
final answer has this form.]
"""
_AGAIN = """\
[Your final answer is not what the program that reads it takes:
{problems}
Answer again with the whole JSON document alone. The schema:]
"""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An answer, checked against a schema."""

    document: str = ""  # the JSON text, "" if it does not fit
    value: Any = None  # the parsed document
    problems: tuple[str, ...] = ()  # each with path in the document and rule


@dataclass(frozen=True)
class ResultSchema:
    """A checked schema, and the text of its file."""

    text: str
    schema: Any

    @property
    def instruction(self) -> str:
        """The instruction for the model."""
        return _INSTRUCTION + self.text

    def read(self, answer: str) -> ReadAnswer:
        """Parse an answer: JSON alone, or JSON in a single fenced block."""
        fenced = _FENCED.fullmatch(answer.strip())
        document = (fenced[1] if fenced else answer).strip()
        try:
            value = json.loads(document, parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError:
            return ReadAnswer(problems=("it is nested too deeply",))
        except ValueError as error:
            return ReadAnswer(problems=(f"it is not JSON alone: {error}",))
        try:
            problems = tuple(_problem(error) for error in self._errors(value))
        except RecursionError:
            problems = ("it is nested too deeply",)
        return ReadAnswer(problems=problems) if problems else ReadAnswer(document, value)

    def check(self) -> None:
        """Raise ValueError for an invalid schema, an unresolvable reference or endless
        recursion.
        """
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        named = self.schema.get("$schema") if isinstance(self.schema, dict) else None
        if named is not None and not (
            isinstance(named, str) and validator_for(self.schema, default=None)
        ):
            raise ValueError(
                f"$schema {shorten(repr(named), MAX_PROBLEM_CHARS)} is not a known draft"
            )
        try:
            self._validator.check_schema(self.schema)
            _resolve_references(self.schema, self._validator.META_SCHEMA["$schema"])
            list(self._errors(None))
        except SchemaError as error:
            raise ValueError(_problem(error)) from None
        except RecursionError:
            raise ValueError("it is nested too deeply, or refers to itself without end") from None

    def _errors(self, value: Any) -> list[Any]:
        from itertools import islice

        from jsonschema_specifications import REGISTRY

        validator = self._validator(self.schema, registry=REGISTRY)
        return list(islice(validator.iter_errors(value), MAX_PROBLEMS))

    @cached_property
    def _validator(self) -> Any:
        from jsonschema.validators import Draft202012Validator, validator_for

        return validator_for(self.schema, default=Draft202012Validator)


class ResultSchemaFeature(Feature):
    """Checks the final answer of a turn against the turn's schema."""

    def __init__(self, session: LiveSession) -> None:
        super().__init__(session)
        self._begin(None)

    def _begin(self, schema: ResultSchema | None) -> None:
        redact = self.session.log.redact
        self._schema = schema
        self._instruction = (
            content_text(redact(User(content=schema.instruction)).content) if schema else ""
        )
        self._tries = 0

    async def turn_started(self, turn: Turn) -> None:
        """Set the schema of the turn."""
        self._begin(turn.schema)

    async def before_call(self) -> None:
        """Record the schema for the model, if the context does not have it."""
        notices = (item for item in self.session.view.items if item.source == NOTICE)
        if self._schema is None:
            return
        if all(block.get("text") != self._instruction for item in notices for block in item.blocks):
            self.session.record(User(content=self._instruction, source=NOTICE))

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Return a request for another answer if a final answer does not fit. Raises ResultError
        after the last try, unless a denied call may be the cause.
        """
        if not is_final or self._schema is None:
            return None
        problems = self._schema.read(text_of(reply.content)).problems
        if not problems:
            return None
        self._tries += 1
        if self._tries >= MAX_TRIES:
            if self.session.denials.unasked():
                return None
            raise ResultError(
                f"the final answer does not fit the schema, after {MAX_TRIES} tries: "
                + "; ".join(problems),
                hint="The answers are in the log. Say in the task what the fields mean, or ask for "
                "less.",
            )
        self.session.notify("info", "the answer does not fit the schema: asking again")
        listed = "\n".join(f"- {problem}" for problem in problems)
        return _AGAIN.format(problems=listed) + self._schema.text


def as_schema(given: "Mapping[str, Any] | ResultSchema | None") -> ResultSchema | None:
    """Return the schema that a program passed in. Raises UsageError for an invalid schema, and for
    one with references that would have to be fetched.
    """
    if given is None or isinstance(given, ResultSchema):
        return given
    try:
        schema = ResultSchema(json.dumps(given, indent=1, allow_nan=False), given)
        schema.check()
    except (TypeError, ValueError) as error:
        hint = "Give a JSON Schema, without external references."
        raise UsageError(f"this is not a valid schema: {error}", hint=hint) from None
    return schema


def read_schema(path: Path) -> ResultSchema:
    """Return the schema in a file. Raises UsageError for an unreadable file, an invalid schema, and
    references that would have to be fetched.
    """
    hint = "Give a file with a JSON Schema, without external references."
    try:
        with path.open("rb") as file:  # may be a pipe: <(…)
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--json-schema {path}: {error.strerror}", hint=hint) from None
    if len(data) > MAX_SCHEMA_BYTES:
        bound = f"it has more than {MAX_SCHEMA_BYTES:,} bytes"
        raise UsageError(f"--json-schema {path}: {bound}", hint=hint)
    try:
        text = data.decode("utf-8-sig").strip()
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema {path}: it is not JSON: {error}", hint=hint) from None
    schema = ResultSchema(text, found)
    try:
        schema.check()
    except ValueError as error:
        raise UsageError(f"--json-schema {path}: {error}", hint=hint) from None
    return schema


def _resolve_references(schema: Any, draft: str) -> None:
    """Raise ValueError for a reference that resolves neither in the schema nor in the standard."""
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    whole = specification_with(draft).create_resource(schema)
    registry = REGISTRY.with_resource(whole.id() or "", whole)
    pending = [(whole, registry.resolver(whole.id() or ""))]
    while pending:
        resource, resolver = pending.pop()
        for each in _references(resource.contents):
            try:
                resolver.lookup(each)
            except (Unresolvable, ValueError):
                raise ValueError(
                    f"$ref {shorten(each, MAX_PROBLEM_CHARS)!r} is not defined in the file, and "
                    "nothing is fetched"
                ) from None
        pending += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        found = (schema.get(name) for name in ("$ref", "$dynamicRef", "$recursiveRef"))
        yield from (each for each in found if isinstance(each, str))


def _problem(error: Any) -> str:
    """Return an error on one line: path in the document, problem, and rule."""
    where = "".join(f"/{part}" for part in error.absolute_path) or "the document"
    rule = "".join(f"/{part}" for part in error.absolute_schema_path)
    return f"{where}: {shorten(error.message, MAX_PROBLEM_CHARS)} (rule {rule or '/'})"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large a number")
    return value
