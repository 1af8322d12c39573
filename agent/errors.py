"""The errors of ctxagent. Each has a message, a hint for the next step, and an exit code.

    CtxagentError                 1   the agent failed
    ├── UsageError                2   a wrong option, or options that exclude each other
    │   └── ConfigError           2   a bad setting; names file, line and the nearest known key
    ├── SessionError              1   a session that cannot be read
    │   ├── NoSuchSession         2   an unknown session or checkpoint
    │   ├── SessionBusy           1   another process has it open; names the session and the process
    │   └── LogDamaged            1   the log lacks what its copies have; names both and the repair
    ├── CompactionFailed          1   a compaction failed and changed nothing; names the reason
    ├── CallNotRun                1   the model wrote a tool call as text, and it was not run
    ├── ResultError               1   the final answer does not fit the requested schema
    ├── RecordError               1   the log could not be written: stop before the next effect
    ├── LimitReached              4   turns, budget, output, a loop, or a context that does not fit
    └── ModelError                5   the model could not be reached or refused the request
        ├── NoCredentials         5   no key in the environment
        ├── RequestRejected       5   4xx that a retry cannot fix (401, 403, 400, 413 …)
        │   ├── KeyRefused        5   401, 402, 403: the key or its account was refused
        │   └── PromptTooLong     5   400 "prompt is too long"; carries the figures if named
        ├── ModelUnavailable      5   429, 5xx, overload, reset or silent streams, after retries
        └── ScriptExhausted       5   the scripted model has no step left

Exit codes are part of the command line's contract.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .lazy import regex

# The second form matches only at the start of a run, up to its first colon. Otherwise a long text
# without "@" would take minutes.
_CREDENTIALS = regex(r"(?<=//)\S*@|(?<![^/\s\"'=])[^/\s\"'=][^/\s\"'=:]*+:[^/\s\"']*@")

_MIN_KEY_CHARS = 8  # characters of a key; a shorter one may be an ordinary word


class CtxagentError(Exception):
    """Base of all errors. `message` names the problem, `hint` the next step."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(CtxagentError):
    exit_code = 2


class ConfigError(UsageError):
    """A bad setting. `where` is its origin: `FILE:LINE`, a variable or an option."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        super().__init__(f"{where}: {message}", hint=hint)
        self.where = where


class SessionError(CtxagentError):
    pass


class NoSuchSession(SessionError):
    exit_code = 2


class SessionBusy(SessionError):
    """Another process has the session open. `session` is its ID, `holder` that process, if
    known.
    """

    def __init__(self, session: str, holder: str) -> None:
        super().__init__(
            f"session {session} is open in another process (pid {holder})",
            hint=f"End that process, or wait for it: `ctxagent --resume {session} --wait`. To go "
            f"on in a copy: `--fork`. To read it: `ctxagent sessions show {session}`.",
        )
        self.session = session
        self.holder = holder


class LogDamaged(SessionError):
    """A log lacks entries that its copies have, or has them in another order."""

    def __init__(self, log: Path, differences: Sequence[str]) -> None:
        super().__init__(
            f"the log of this session is damaged: {log}: {'; '.join(differences)}",
            hint="Nothing was changed, so the copies are as they were. `ctxagent doctor "
            f"{log.parent.name} --repair` rebuilds the log from its copies.",
        )
        self.log = log


class RecordError(CtxagentError):
    pass


class CallNotRun(CtxagentError):
    pass


class ResultError(CtxagentError):
    pass


class CompactionFailed(CtxagentError):
    pass


class LimitReached(CtxagentError):
    """A limit of the run was reached. `limit` is turns, budget, output, loop or context. `value` is
    the number of turns or the dollars.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, limit: str, value: float | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit
        self.value = value


class ModelError(CtxagentError):
    """A failed model request. `status` is the HTTP status, or None if there was no response;
    `request_id` is the server's.
    """

    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.request_id = request_id


class NoCredentials(ModelError):
    pass


class RequestRejected(ModelError):
    pass


class KeyRefused(RequestRejected):
    pass


class PromptTooLong(RequestRejected):
    """The prompt exceeds the model's context window. `tokens` and `maximum` are the server's
    figures, or None if it named none.
    """

    def __init__(
        self,
        message: str,
        *,
        tokens: int | None = None,
        maximum: int | None = None,
        status: int | None = 400,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, status=status, request_id=request_id)
        self.tokens = tokens
        self.maximum = maximum


class ModelUnavailable(ModelError):
    """The model could not be reached. `is_overload` is True for a temporary overload (529, 503,
    429). `may_refuse` is True if the server answered each attempt in the same way, so that the
    request may be the cause. `reason` is why the last attempt failed.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        is_overload: bool = False,
        may_refuse: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(message, **more)
        self.reason = reason or message
        self.is_overload = is_overload
        self.may_refuse = may_refuse


class ScriptExhausted(ModelError):
    pass


def conceal(text: str, *keys: str | None) -> str:
    """Return the text without these keys and without user names and passwords in addresses."""
    for key in filter(None, keys):
        if len(key.strip()) >= _MIN_KEY_CHARS:
            text = text.replace(key.strip(), "…")
    return _CREDENTIALS.sub("…@", text)


class ToolError(Exception):
    """A call that failed. The message goes to the model."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
