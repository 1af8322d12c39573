"""Files in legacy encodings: Read, Edit, Write and Grep decode them alike, and change only the
bytes that they are asked to change.
"""

import asyncio
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.edit import EditParams, EditTool
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.read import ReadParams, ReadTool
from ctxagent.tools.write import WriteParams, WriteTool

RUSSIAN = "// Функция возвращает сумму двух чисел\nint sum;\n// Возможная ошибка\n"
CHINESE = "// 这个函数返回两个数的和\nint sum;\n// 如果失败则返回错误\n"
TAIWAN = "// 這個函數返回兩個數的和\nint sum;\n// 如果失敗則返回錯誤\n"
JAPANESE = "// この関数は二つの数の和を返す\nint sum;\n// 表示できない場合\n"
KOREAN = "// 이 함수는 두 수의 합을 반환합니다\nint sum;\n// 실패하면 오류\n"
FRENCH = "// Cette fonction a été créée pour célébrer\nint sum;\n// où ça, déjà vu à Orléans\n"
POLISH = "// Zażółć gęślą jaźń, proszę bardzo\nint sum;\n// Łódź, świeże źródło, błąd\n"
GREEK = "// Η συνάρτηση επιστρέφει το άθροισμα\nint sum;\n// Σφάλμα\n"
TURKISH = "// Bu işlev iki sayının toplamını döndürür\nint sum;\n// Hata değeri, şöyle\n"
HEBREW = "// הפונקציה מחזירה את הסכום של שני מספרים\nint sum;\n// שגיאה\n"
ARABIC = "// هذه الدالة ترجع مجموع عددين\nint sum;\n// خطأ في القيمة\n"
THAI = "// ฟังก์ชันนี้คืนค่าผลรวมของสองจำนวน\nint sum;\n// ข้อผิดพลาด\n"

# A text in an encoding, a word of its other lines, and a word that a model may add.
SAMPLES = [
    ("cp1251", RUSSIAN, "Возможная", "привет"),
    ("koi8-r", RUSSIAN, "Возможная", "привет"),
    ("cp866", RUSSIAN, "Возможная", "привет"),
    ("gbk", CHINESE, "失败", "你好"),
    ("big5", TAIWAN, "失敗", "你好"),
    ("cp932", JAPANESE, "場合", "日本"),
    ("euc_jp", JAPANESE, "場合", "日本"),
    ("euc_kr", KOREAN, "실패하면", "안녕"),
    ("latin-1", FRENCH, "déjà", "naïf"),
    ("cp1250", POLISH, "źródło", "żółw"),
    ("iso8859-2", POLISH, "źródło", "żółw"),
    ("cp1253", GREEK, "Σφάλμα", "γεια"),
    ("cp1254", TURKISH, "değeri", "ağaç"),
    ("cp1255", HEBREW, "שגיאה", "שלום"),
    ("cp1256", ARABIC, "القيمة", "مرحبا"),
    ("cp874", THAI, "ข้อผิดพลาด", "สวัสดี"),
    ("utf-16-le", RUSSIAN, "Возможная", "привет"),
]
each_sample = pytest.mark.parametrize(("encoding", "text", "word", "new"), SAMPLES)


def edit(root: Path, old: str, new: str, name: str = "a.c", encoding: str | None = None) -> Output:
    params = EditParams(path=name, old_string=old, new_string=new, encoding=encoding)
    return asyncio.run(EditTool().run(params, Context(cwd=root)))


def read(root: Path, name: str = "a.c", encoding: str | None = None) -> str:
    params = ReadParams(path=name, encoding=encoding)
    return asyncio.run(ReadTool().run(params, Context(cwd=root))).text


def grep(root: Path, pattern: str) -> str:
    params = GrepParams(pattern=pattern, output_mode="content")
    return asyncio.run(GrepTool().run(params, Context(cwd=root))).text


@each_sample
def test_all_tools_read_a_file_alike(
    tmp_path: Path, encoding: str, text: str, word: str, new: str
) -> None:
    (tmp_path / "a.c").write_bytes(text.encode(encoding))
    shown = read(tmp_path)
    lines = [row.partition("\t")[2] for row in shown.splitlines()[:3]]
    assert lines == text.splitlines()
    assert "unknown" not in shown


@pytest.mark.slow
@each_sample
def test_grep_finds_what_read_shows(
    tmp_path: Path, encoding: str, text: str, word: str, new: str
) -> None:
    (tmp_path / "a.c").write_bytes(text.encode(encoding))
    (tmp_path / "b.c").write_text(f"{word} in UTF-8\n", "utf-8")
    assert grep(tmp_path, word) == f"a.c:3:{text.splitlines()[2]}\nb.c:1:{word} in UTF-8"


@each_sample
def test_an_edit_changes_only_its_bytes(
    tmp_path: Path, encoding: str, text: str, word: str, new: str
) -> None:
    path = tmp_path / "a.c"
    path.write_bytes(text.encode(encoding))
    out = edit(tmp_path, "int sum;", f"long total; // {new}")
    assert path.read_bytes() == text.replace("int sum;", f"long total; // {new}").encode(encoding)
    assert f"+long total; // {new}" in out.details["diff"]
    edit(tmp_path, word, "plain ASCII")
    edit(tmp_path, "plain ASCII", word)
    edit(tmp_path, f"long total; // {new}", "int sum;")
    assert path.read_bytes() == text.encode(encoding)


@each_sample
def test_what_was_read_can_be_written_back(
    tmp_path: Path, encoding: str, text: str, word: str, new: str
) -> None:
    path = tmp_path / "a.c"
    path.write_bytes(text.encode(encoding))
    context = Context(cwd=tmp_path)
    asyncio.run(ReadTool().run(ReadParams(path="a.c"), context))
    for content in (text + new, text):
        asyncio.run(WriteTool().run(WriteParams(path="a.c", content=content), context))
        assert path.read_bytes() == content.encode(encoding)


@each_sample
def test_a_character_that_the_encoding_lacks_is_named(
    tmp_path: Path, encoding: str, text: str, word: str, new: str
) -> None:
    if encoding.startswith("utf"):
        pytest.skip("it has all characters")
    path = tmp_path / "a.c"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ToolError, match=r"🙂 \(U\+1F642, line 2\) does not exist in") as refused:
        edit(tmp_path, "int sum;", "int sum; // 🙂")
    assert "iconv" not in str(refused.value)
    assert path.read_bytes() == text.encode(encoding)


def test_bytes_that_decode_alike_stay_as_they_are(tmp_path: Path) -> None:
    # cp932 has two codes for ∵. Python encodes only the other one.
    data = b"\x81\xe6 \x87\x9a " + JAPANESE.encode("cp932")
    assert data.decode("cp932").encode("cp932") != data
    (tmp_path / "a.c").write_bytes(data)
    edit(tmp_path, "∵ ∵ // この", "∵ ∵ // あの")
    changed = JAPANESE.replace("この", "あの", 1).encode("cp932")
    assert (tmp_path / "a.c").read_bytes() == b"\x81\xe6 \x87\x9a " + changed


def test_an_unknown_encoding_takes_only_ascii(tmp_path: Path) -> None:
    data = "# Привет\nname = 'x'\n".encode("cp1251")
    (tmp_path / "a.c").write_bytes(data)
    assert "[the encoding is unknown: shown as cp1251, which may be wrong." in read(tmp_path)
    with pytest.raises(ToolError, match=r"unknown, so only ASCII .* é \(U\+00E9, line 2\)"):
        edit(tmp_path, "'x'", "'café'")
    assert (tmp_path / "a.c").read_bytes() == data
    edit(tmp_path, "'x'", "'y'")
    assert (tmp_path / "a.c").read_bytes() == data.replace(b"'x'", b"'y'")
    with pytest.raises(ToolError, match=r"é \(U\+00E9, line 2\) does not exist in cp1251"):
        edit(tmp_path, "'y'", "'café'", encoding="windows-1251")
    edit(tmp_path, "'y'", "'мир'", encoding="windows-1251")
    assert (tmp_path / "a.c").read_bytes() == "# Привет\nname = 'мир'\n".encode("cp1251")


def test_an_ascii_letter_may_be_the_half_of_an_unknown_character(tmp_path: Path) -> None:
    data = b"\xe0\x5c"  # one character of Shift_JIS, or an accented letter and a backslash
    (tmp_path / "a.c").write_bytes(data)
    with pytest.raises(ToolError, match="a change within characters of line 1"):
        edit(tmp_path, "\\", "/", encoding=None) if "\\" in read(tmp_path) else edit(
            tmp_path, read(tmp_path)[2:3], "/"
        )
    assert (tmp_path / "a.c").read_bytes() == data


def test_a_file_is_converted_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes(RUSSIAN.encode("cp1251"))
    context = Context(cwd=tmp_path)
    asyncio.run(ReadTool().run(ReadParams(path="a.c"), context))
    params = WriteParams(path="a.c", content=f"{RUSSIAN}é", encoding="utf-8")
    asyncio.run(WriteTool().run(params, context))
    assert (tmp_path / "a.c").read_text("utf-8") == f"{RUSSIAN}é"


@pytest.mark.parametrize("name", ["cp1251", "rot13", "nonsense"])
def test_a_stated_encoding_must_fit(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.c").write_bytes(b"\x98 \xe9")  # cp1251 has no character 0x98
    with pytest.raises(ToolError, match=f"a.c is not text in the encoding {name}: "):
        read(tmp_path, encoding=name)


def test_a_character_for_invalid_bytes_never_replaces_them(tmp_path: Path) -> None:
    data = "é\n".encode() * 3 + b"bad \xff byte\n"
    (tmp_path / "a.c").write_bytes(data)
    context = Context(cwd=tmp_path)
    asyncio.run(ReadTool().run(ReadParams(path="a.c"), context))
    for encoding in (None, "utf-8"):
        given = WriteParams(path="a.c", content="bad \ufffd byte\n", encoding=encoding)
        with pytest.raises(ToolError, match="stands for bytes of"):
            asyncio.run(WriteTool().run(given, context))
    with pytest.raises(ToolError, match="stands for bytes of"):
        edit(tmp_path, "bad \ufffd", "good")
    with pytest.raises(ToolError, match="stands for bytes of"):
        edit(tmp_path, "bad", "\ufffd")
    assert (tmp_path / "a.c").read_bytes() == data
    edit(tmp_path, "bad", "good")
    assert (tmp_path / "a.c").read_bytes() == data.replace(b"bad", b"good")


def test_iso_2022_takes_only_ascii(tmp_path: Path) -> None:
    data = "日本語\nx=1\n".encode("iso2022_jp")
    (tmp_path / "a.c").write_bytes(data)
    assert "the encoding is unknown" in read(tmp_path)
    with pytest.raises(ToolError, match="only ASCII can be written"):
        edit(tmp_path, "x=1", "値=1")
    assert (tmp_path / "a.c").read_bytes() == data
    edit(tmp_path, "x=1", "x=2")
    assert (tmp_path / "a.c").read_bytes() == data.replace(b"x=1", b"x=2")


@pytest.mark.parametrize("encoding", ["iso-2022-jp", "unicode_escape", "hz", "utf-7", "base64"])
def test_an_encoding_with_escapes_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.c").write_bytes(b'printf("a\\n");\n')
    with pytest.raises(ToolError, match="is no known text encoding"):
        edit(tmp_path, "a", "é", encoding=encoding)
