"""Find the entry that a fact of a summary quotes: a message of the user or the result of a call.

The model's own words are no source. Blocking: long texts are read from the log.
"""

from collections.abc import Iterator

from ...session.store import content_text
from ..host import EngineHost
from .facts import Source
from .user_rules import TextOf, quoted_sentence

MAX_SEARCHED_CHARS = 4_000_000  # of a text in a file, searched for quotations


class SourceFinder:
    """Finds quotations in the entries of one conversation."""

    def __init__(self, host: EngineHost, text_of: TextOf) -> None:
        self._host, self._text_of = host, text_of
        self._messages = {each.ref: each for each in host.ledger.messages}
        self._shown = {
            result.item.seq: content_text(result.block.get("content") or "")
            for result in host.view.results()
        }

    def find(self, ref: int, quoted: str) -> Source | None:
        """Return the source of a quotation: the entry `ref` if that contains it, else the newest
        entry in the context that does.
        """
        for seq, text in self._texts(ref):
            if sentence := quoted_sentence(text, quoted):
                message = self._messages.get(seq)
                return Source(seq, sentence, message is not None and not message.is_attached)
        return None

    def _texts(self, ref: int) -> Iterator[tuple[int, str]]:
        if ref in self._messages:
            yield ref, self._text_of(self._messages[ref])
        elif self._is_result(ref) and (whole := self._host.recall([ref]).get(ref)):
            yield ref, whole.part(0, MAX_SEARCHED_CHARS)[0]
        for seq in sorted({*self._shown, *self._messages} - {ref}, reverse=True):
            message = self._messages.get(seq)
            yield seq, self._text_of(message) if message else self._shown[seq]

    def _is_result(self, ref: int) -> bool:
        ledger = self._host.ledger
        ran = (fact.ref for fact in ledger.commands)
        return ref in self._shown or ref in ledger.read.values() or ref in ran
