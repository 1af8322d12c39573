"""What the REPL has behind it: the project it works in, and what the command line lets it do with
sessions and settings. Everything has a meaning of its own where nothing is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import UsageError
from ..events import Ask, Emit

if TYPE_CHECKING:
    from ..keeping import RuleFiles
    from ..loop import Loop


class Opener(Protocol):
    """Opens a session: the one the command line asked for, or another; with `prior`, a fresh one
    that is told so much of another; with `read_only`, one that another process may have. Raises
    CtxagentError, SessionBusy when another process has it."""

    async def __call__(
        self,
        emit: Emit,
        ask: Ask,
        *,
        resume: str | None = None,
        fork: bool = False,
        prior: str | None = None,
        read_only: bool = False,
    ) -> "Loop": ...


def _nothing() -> None:
    return None


def _keep_model(loop: "Loop", id: str) -> None:
    raise UsageError("the model cannot be changed here", hint=f"Start with --model {id}")


def _keep_single(log: Path, upto: int) -> Path:
    raise UsageError("this session cannot be copied here")


@dataclass(frozen=True, slots=True)
class Backing:
    """`history` is a file, None for none. `warm` runs in a thread once the prompt is painted.

    `sessions` gives the project's logs, newest first, `everywhere` those of all projects; `copy`
    copies one up to an entry; `settings` gives rows of key, value and origin, `checks` what was
    found wrong or right, `models` the models that are known and what each is; `set_model` changes a
    conversation's model; `rules` are the files that a person's rules are kept in. With `wait`
    nobody is asked when another process has the session asked for: it is waited for.
    """

    open: Opener
    cwd: Path
    version: str
    history: Path | None = None
    warm: Callable[[], None] = _nothing
    sessions: Callable[[], Sequence[Path]] = list
    everywhere: Callable[[], Sequence[Path]] = list
    copy: Callable[[Path, int], Path] = _keep_single
    settings: Callable[[], Sequence[Sequence[str]]] = list
    checks: Callable[[], Sequence[Sequence[str]]] = list
    models: Callable[[], Sequence[Sequence[str]]] = list
    set_model: Callable[["Loop", str], None] = _keep_model
    rules: "RuleFiles | None" = None
    wait: bool = False
