"""Hand-over to a new subagent: it happens if the task is the same, however it is worded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.session.subagent_logs import MAX_TEXT_CHARS, GivenTask, similarity

Task = tuple[str, str]

SAME: list[tuple[Task, Task]] = [
    (("Find  the port", "x"), ("find the port", "y")),
    (("Fix parser tests", "Make them pass."), ("fix the parser test", "It still fails.")),
    (("Count lines in logs", "a"), ("Count the lines of all logs", "b")),
    (
        ("Fix failing parser test", "Fix the parser test that fails in tests/test_parser.py."),
        ("Fix parser test", "tests/test_parser.py is failing. Mend the parser."),
    ),
    (("…", "x"), ("…", "y")),
    # The same directory, most words, another verb.
    (
        ("Count the lists", "Count the entries of every list in lists/ and report totals."),
        ("Tally list entries", "Please count the entries of every list in lists/, tell totals."),
    ),
    # No file at all.
    (
        ("Find gateway port", "Which port does the gateway listen on? Look through the config."),
        ("Locate listening port of gateway", "Find out on which port the gateway listens."),
    ),
    # The same two files, few words.
    (
        (
            "Review auth flow",
            "Review the login flow in src/auth/login.py and src/auth/token.py for security bugs.",
        ),
        (
            "Security check of login",
            "Look for security problems in auth/login.py, auth/token.py. How does login work?",
        ),
    ),
    (
        ("Zähle die Einträge", "Zähle die Einträge jeder Liste in lists/ und nenne die Summen."),
        ("Listeneinträge zählen", "Ermittle für jede Liste unter lists/ die Zahl der Einträge."),
    ),
    (
        ("Trouver le port", "Trouve sur quel port la passerelle écoute, dans conf/gate.toml."),
        ("Port de la passerelle", "Quel est le port d'écoute de la passerelle ? conf/gate.toml"),
    ),
    (
        ("Comprobar los tests", "Ejecuta los tests de tests/api/ y di cuáles fallan."),
        ("Ver qué tests fallan", "Corre las pruebas en tests/api/ y enumera los que fallan."),
    ),
    (
        ("Посчитать строки", "Посчитай строки во всех журналах каталога logs/ и сообщи итог."),
        ("Число строк в журналах", "Сколько строк в каждом журнале из logs/? Нужен итог."),
    ),
    (
        ("统计列表条目", "统计 lists/ 中每个列表的条目数。"),
        ("计算列表中的条目", "请计算 lists/ 里每个列表有多少条目。"),
    ),
    (
        ("ログの行数を数える", "logs/ の各ログの行数を数えて合計を報告する"),
        ("各ログの行数", "logs/ にあるログの行数の合計を調べる"),
    ),
]
DIFFERENT: list[tuple[Task, Task]] = [
    (("Find the port", "x"), ("other", "y")),
    (("Fix lint errors", "Only in src/a.py."), ("Fix lint errors", "Only in src/b.py.")),
    (("Review auth module", "Look at auth."), ("Review billing module", "Look at billing.")),
    (("Review auth", "One of auth, billing."), ("Review billing", "One of auth, billing.")),
    (("Review", "the code"), ("Review again the tests", "the code")),
    (("…", "x"), ("!", "x")),
    (
        ("Count the lists", "Count the entries of every list in lists/ and report totals."),
        ("Translate the docs", "Translate README into French."),
    ),
    # Parts of one job differ in little but a name or a number.
    (
        ("Find gateway port", "Which port does the gateway listen on? Look through the config."),
        ("Find database port", "Which port does the database listen on? Look through the config."),
    ),
    (
        ("Count list 3", "Count the entries of list 3."),
        ("Count list 4", "Count the entries of list 4."),
    ),
    (
        ("Prüfe die Anmeldung", "Prüfe das Modul der Anmeldung auf Fehler, nenne Datei und Zeile."),
        ("Prüfe die Abrechnung", "Prüfe das Modul der Abrechnung auf Fehler, nenne Datei, Zeile."),
    ),
    (
        ("检查登录模块", "检查登录模块的错误，报告文件和行号。"),
        ("检查计费模块", "检查计费模块的错误，报告文件和行号。"),
    ),
    # The same place, other work.
    (
        ("Review src security", "Review src/ for security problems. Report file and line."),
        ("Review src performance", "Review src/ for performance problems. Report file and line."),
    ),
    (
        ("Fix lint errors", "Fix the lint errors in src/a.py."),
        ("Translate comments", "Translate the comments of src/a.py into German."),
    ),
    (
        ("Explain the parser", "Explain how src/parser.py works."),
        ("Speed up the parser", "Make src/parser.py faster; measure it first."),
    ),
    (("Run the tests", "Run the tests and report."), ("Write tests", "Write tests for the login.")),
    # The same words, other places.
    (
        ("Count the lists", "Count the entries of every list in lists/ and report totals."),
        ("Count the lists", "Count the entries of every list in archive/ and report totals."),
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=lambda task: task[0])
def test_the_same_work(one: Task, other: Task) -> None:
    assert similarity(GivenTask(*one), GivenTask(*other)) > 0
    assert similarity(GivenTask(*other), GivenTask(*one)) > 0


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=lambda task: task[0])
def test_different_tasks_have_no_similarity(one: Task, other: Task) -> None:
    assert similarity(GivenTask(*one), GivenTask(*other)) == 0
    assert similarity(GivenTask(*other), GivenTask(*one)) == 0


def test_files_that_the_earlier_one_touched_count_as_its_own() -> None:
    new = GivenTask("Repair config loading", "Config loading in src/config/load.py drops keys.")
    words = ("Find the lost keys", "Some keys vanish when the config is loaded. Repair it.")
    assert not similarity(new, GivenTask(*words))
    assert similarity(new, GivenTask(*words, files=["README.md", "src/config/load.py"]))
    assert not similarity(new, GivenTask(*words, files=["README.md", "src/config/save.py"]))


def test_the_place_is_known_by_any_form_of_its_path() -> None:
    before = GivenTask(
        "Review token checks", "Review how tokens are checked.", ["src/auth/token.py"]
    )
    for place in ("/p/src/auth/token.py", "auth/token.py", "src/auth/", "`./src/auth/`"):
        new = GivenTask("Token check review", f"How are tokens checked in {place}? Review that.")
        assert similarity(new, before) > 1, place
    other = GivenTask("Token check review", "How are tokens checked in lib/jwt.py? Review that.")
    assert not similarity(other, before)


def test_texts_that_only_look_like_paths() -> None:
    before = GivenTask(
        "Count the lists", "Count the entries, e.g. of red and/or blue lists. 3.5 s at most."
    )
    new = GivenTask(
        "Count all lists", "Count entries of lists (i.e. red/blue), see https://x.example/a/b."
    )
    assert similarity(new, before)


def test_the_closer_task_is_more_similar() -> None:
    new = GivenTask("Fix the parser test", "Fix tests/test_parser.py: the parser test fails.")
    near = GivenTask("Repair parser test", "The parser test in tests/test_parser.py fails. Fix it.")
    far = GivenTask("Run the parser test", "Run it often and say whether the parser test is flaky.",
               ["tests/test_parser.py"])  # fmt: skip
    assert similarity(new, near) > similarity(new, far)


@given(st.text(max_size=60), st.text(max_size=200), st.text(max_size=60), st.text(max_size=200))
def test_any_text_is_similar_to_itself(one: str, prompt: str, other: str, more: str) -> None:
    assert similarity(GivenTask(one, prompt), GivenTask(one, prompt)) > 0
    assert similarity(GivenTask(one, prompt), GivenTask(other, more)) >= 0


@pytest.mark.slow
def test_a_long_text_is_compared_by_its_beginning() -> None:
    long = "".join(f"word{n} " for n in range(200_000))
    assert similarity(GivenTask("Sum the words", long), GivenTask("Sum all of the words", long)) > 0
    assert len(long) > 100 * MAX_TEXT_CHARS
