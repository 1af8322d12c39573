"""The limit of the entries that are added after a summary."""

from ctxagent.agent.compaction.reinserted import reinserted_tokens, reinserted_within
from ctxagent.agent.context.window import Window
from ctxagent.agent.session.entries import User


def test_only_the_longest_is_cut_and_says_so() -> None:
    window = Window(0, 8_000)
    short = User(content="Permission mode: default", source="environment")
    rules = User(content="Instructions from /p/AGENTS.md:\n\n" + "rule " * 5_000)
    assert reinserted_within([short, short], window) == [short, short]
    first, second = reinserted_within([short, rules], window)
    assert first == short
    assert isinstance(second, User)
    assert str(second.content).startswith("Instructions from /p/AGENTS.md:\n\nrule rule")
    assert "more characters; read what is named above for the rest]" in str(second.content)
    assert 1_900 < reinserted_tokens([first, second]) < 2_050
