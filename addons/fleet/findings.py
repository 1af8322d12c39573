"""What the checks before a run find: mistakes, doubts and notes, each with the right form."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ...api.base import CtxagentError, UsageError, dataclass
from ...api.text import as_sentences, count_of, cut_at_word

# A mistake stops the run, a doubt stops it without --yes, a note does not stop it.
FindingLevel = Literal["error", "doubt", "note"]
MAX_LISTED, MAX_CHARS = 50, 600  # listed findings, characters of each


class Wrong(ValueError):
    """The mistakes in a line of a manifest, each (what is wrong, the right form)."""

    def __init__(self, *mistakes: tuple[str, str]) -> None:
        super().__init__("; ".join(as_sentences(f"{what}\n{right}") for what, right in mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class ManifestFinding:
    """Something that a check found, in one line or many."""

    what: str
    right: str = ""  # the right form, or what to do
    level: FindingLevel = "error"
    lines: list[int] = field(default_factory=list)  # empty if it concerns the whole run
    error: CtxagentError | None = None  # the error with its own exit code

    def text(self, path: Path) -> str:
        """Return the finding as one line, with its place in the file."""
        where = ""
        if self.lines:
            more = f" and {len(self.lines) - 1:,} more" if len(self.lines) > 1 else ""
            where = f"{path}:{self.lines[0]}{more}: "
        return as_sentences(f"{where}{self.what}\n{self.right}")

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {"level": self.level, "lines": self.lines, "what": self.what, "right": self.right}


class ManifestFindings:
    """All findings about one manifest. The same finding in several lines is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[tuple[str, str, FindingLevel], ManifestFinding] = {}

    def __iter__(self) -> Iterator[ManifestFinding]:
        return iter(self._found.values())

    def add(
        self,
        what: str,
        right: str = "",
        level: FindingLevel = "error",
        lines: Sequence[int] = (),
        error: CtxagentError | None = None,
    ) -> None:
        """Add a finding in some lines."""
        found = self._found.setdefault(
            (what, right, level), ManifestFinding(what, right, level, error=error)
        )
        found.lines.extend(line for line in lines if line not in found.lines[-1:])

    def of(self, *levels: FindingLevel) -> list[ManifestFinding]:
        """Return the findings of these levels, in the order of lines."""
        found = [each for each in self if each.level in levels]
        return sorted(found, key=lambda each: each.lines[:1])

    def raise_errors(self, *, accepted: bool = False) -> None:
        """Raise one error for all mistakes, and for all doubts unless they are `accepted`."""
        wrong = self.of("error") if accepted else self.of("error", "doubt")
        if len(wrong) == 1:
            raise wrong[0].error or UsageError(wrong[0].text(self.path))
        if wrong:
            texts = [cut_at_word(each.text(self.path), MAX_CHARS) for each in wrong[:MAX_LISTED]]
            more = len(wrong) - MAX_LISTED
            tail = [f"and {more:,} more: `fleet check --json` lists all"] if more > 0 else []
            head = f"{count_of(len(wrong), 'mistake')} in {self.path}:"
            raise UsageError("\n".join([head, *texts, *tail]))
