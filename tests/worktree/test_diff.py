"""The text of git's diffs: each file in its own encoding."""

from pathlib import Path

from ctxagent.agent.worktree.diff import decoded

PART = """diff --git a/{name} b/{name}
--- a/{name}
+++ b/{name}
@@ -1 +1 @@
-// старая строка файла
+// новая строка файла, возможная ошибка
"""


def test_each_file_is_decoded_by_itself(tmp_path: Path) -> None:
    parts = [(PART.format(name=f"{each}.c"), each) for each in ("utf-8", "cp1251", "koi8-r")]
    said = b"".join(text.encode(encoding) for text, encoding in parts)
    assert decoded(said, tmp_path) == "".join(text for text, _ in parts)


def test_the_project_states_the_encoding_of_a_short_change(tmp_path: Path) -> None:
    (tmp_path / ".editorconfig").write_text("[*.c]\ncharset = cp1251\n")
    said = "diff --git a/a.c b/a.c\n--- a/a.c\n+++ b/a.c\n@@ -1 +1 @@\n-Да\n+Нет\n"
    assert decoded(said.encode("cp1251"), tmp_path) == said


def test_bytes_of_no_encoding_do_no_harm(tmp_path: Path) -> None:
    said = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-\x01\x02\x03\x04\xff\n+x\n"
    assert decoded(said, tmp_path).endswith("\n+x\n")
