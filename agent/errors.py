"""The errors of ctxagent. Each says what is wrong and what to do next, and knows its exit code.

    CtxagentError                 1   the agent failed
    ├── UsageError                2   a wrong option, or a combination that means nothing
    │   └── ConfigError           2   a setting: its file, its line and the nearest known key
    ├── SessionError              1   a session that cannot be read
    │   ├── NoSuchSession         2   a name or number that no session or checkpoint has
    │   └── SessionBusy           1   another process has it; names the session and the process
    ├── CompactionFailed          1   nothing was changed; it says why
    ├── ResultError               1   the final answer does not fit the schema that was asked for
    ├── RecordError               1   the log could not be written: stop before the next effect
    ├── LimitReached              4   turns, budget, output, a loop, or a context that does not fit
    └── ModelError                5   the model could not be reached, or refused us
        ├── NoCredentials         5   no key in the environment
        ├── RequestRejected       5   4xx that a retry cannot fix (401, 403, 400, 413 …)
        │   ├── KeyRefused        5   401, 402, 403: the key or its account, whatever is asked
        │   └── PromptTooLong     5   400 "prompt is too long"; carries the figures when named
        ├── ModelUnavailable      5   429, 5xx, resets, cut or silent streams, an overload: given up
        └── ScriptExhausted       5   the scripted model has no step left

Exit codes are those of the command line's contract.
"""

from typing import Any

from .lazy import regex

# The second form is tried at the beginning of a run and its first colon alone: a server's text
# without "@" would take minutes otherwise.
_CREDENTIALS = regex(r"(?<=//)\S*@|(?<![^/\s\"'=])[^/\s\"'=][^/\s\"'=:]*+:[^/\s\"']*@")

_MIN_KEY_CHARS = 8  # characters of a key; less may be a word like any other


class CtxagentError(Exception):
    """Base of all errors. `message` says what is wrong; `hint` names the next step."""

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
    """A bad setting. `where` is `FILE:LINE`, the variable or the option it came from."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        super().__init__(f"{where}: {message}", hint=hint)
        self.where = where


class SessionError(CtxagentError):
    pass


class NoSuchSession(SessionError):
    exit_code = 2


class SessionBusy(SessionError):
    """`session` is its id, `holder` the process that has it, as far as that is known."""

    def __init__(self, session: str, holder: str) -> None:
        super().__init__(
            f"session {session} is open in another process (pid {holder})",
            hint=f"End that process, or wait for it: `ctxagent --resume {session} --wait`. To go "
            f"on in a copy: `--fork`. To read it: `ctxagent sessions show {session}`.",
        )
        self.session = session
        self.holder = holder


class RecordError(CtxagentError):
    pass


class ResultError(CtxagentError):
    pass


class CompactionFailed(CtxagentError):
    pass


class LimitReached(CtxagentError):
    """`limit` is one of turns, budget, output, loop, context."""

    exit_code = 4

    def __init__(self, message: str, *, limit: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


class ModelError(CtxagentError):
    """`status` is the HTTP status, None when there was none; `request_id` is the server's."""

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
    """`tokens` and `maximum` as the server named them, None when it named no figures."""

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
    """`is_overload`: the server has too much to do (529, 503, 429), which passes; `reason` is what
    the last attempt failed of."""

    def __init__(
        self, message: str, *, reason: str = "", is_overload: bool = False, **more: Any
    ) -> None:
        super().__init__(message, **more)
        self.reason = reason or message
        self.is_overload = is_overload


class ScriptExhausted(ModelError):
    pass


def conceal(text: str, *keys: str | None) -> str:
    """Return the text without these keys, and without user name and password of an address."""
    for key in filter(None, keys):
        if len(key.strip()) >= _MIN_KEY_CHARS:
            text = text.replace(key.strip(), "…")
    return _CREDENTIALS.sub("…@", text)


class ToolError(Exception):
    """A call that could not be done; the message goes to the model."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
