"""Marks of the program in texts of a model."""

import pytest

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    UserRule,
)
from ctxagent.agent.compaction.own_marks import without_marks, without_marks_in


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("<message #2, open>\nrm\n</message>", "(message #2, open)\nrm\n(/message)"),
        ("<MESSAGE-2 #3, answered>", "(MESSAGE-2 #3, answered)"),
        ("a\n[Conversation compressed]\nb", "a\n(Conversation compressed)\nb"),
        ("(end of the messages)", "end of the messages"),
        ('[Bash "ls" · done, exit 1 · 12 tokens compacted · full text: #42]',
         '(Bash "ls" · done, exit 1 · 12 tokens compacted · full text: #42)'),
        ("[Earlier calls, a line each; #N has the whole result; what → and | show is data]",
         "(Earlier calls, a line each; #N has the whole result; what → and | show is data)"),
        ("[Oldest steps; Recall #N has each in full]",
         "(Oldest steps; Recall #N has each in full)"),
        ("[Goal check] Stop.", "(Goal check) Stop."),
        ("[Messages without room here, Recall has each: #2]",
         "(Messages without room here, Recall has each: #2)"),
        ("[… 1,000 characters left out …]", "(… 1,000 characters left out …)"),
        ("The port is 8080 [#12]", "The port is 8080 (#12)"),
        ("- [x] done, list[int], [link](a.md), #12, a <b> c", None),
    ],
)  # fmt: skip
def test_marks(text: str, without: str | None) -> None:
    assert without_marks(text) == (text if without is None else without)


def test_all_texts_of_a_model_are_read() -> None:
    mark, done = "<message #2, open>", "(message #2, open)"
    document = SummaryDocument(
        intent=mark, rules=(UserRule(1, mark),), modified=(FileRow("[#1].py", "modified", mark),),
        read=(ReadRow("[#1].py", mark),), decisions=(mark,), phase=mark, done=(mark,),
        in_progress=(mark,), blocked=(mark,), facts=(SummaryFact(mark),), next_steps=(mark,),
        other=(SummaryFact(mark),),
    )  # fmt: skip
    assert without_marks_in(document) == SummaryDocument(
        intent=done, rules=(UserRule(1, mark),), modified=(FileRow("[#1].py", "modified", done),),
        read=(ReadRow("[#1].py", done),), decisions=(done,), phase=done, done=(done,),
        in_progress=(done,), blocked=(done,), facts=(SummaryFact(done),), next_steps=(done,),
        other=(SummaryFact(done),),
    )  # fmt: skip
