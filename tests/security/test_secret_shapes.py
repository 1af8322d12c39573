"""Shapes of secrets: which are found, and similar texts that are not secrets."""

import time

import pytest

from ctxagent.agent.security.redaction import without_shapes
from ctxagent.tools.redaction_marks import mark

from ..support.secret_texts import HARMLESS, PEM, SECRETS, lot


def taken(text: str) -> str:
    return without_shapes(text, mark)


@pytest.mark.parametrize("said", SECRETS, ids=[each[:24] for each in SECRETS])
def test_shapes_are_redacted(said: str) -> None:
    secret = SECRETS[said] or said
    for text in (said, f"before\n{said}\nafter", f"# it is {said}\r\n"):
        left = taken(text)
        assert secret not in left
        assert "[redacted: " in left
        assert taken(left) == left
    assert taken(f"before {said}\nafter").startswith("before ")


def test_harmless_texts_are_unchanged() -> None:
    for text in HARMLESS:
        assert taken(text) == text


def test_kinds_are_named() -> None:
    assert taken(f"ghp_{lot(36)}") == "[redacted: GitHub token]"
    assert taken(PEM) == "[redacted: private key]"
    assert taken("redis://:pa55word@h:1") == "redis://:[redacted: password of an address]@h:1"


HOSTILE = (
    "a", "token", "token=", "TOKEN='", "A_TOKEN_", "://", "://a:", "://a:bbbbb",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ", "-----END ",
    "eyJ", "eyJaaaaaaaaaa.", "sk-", "sk-ant-", "Bearer ", "Bearer%20", "&sig=", "a.b-c_token.",
    "İtoken=é", "token:\t", "token=\n", "ghp_xoxb-AKIAsk-SG.hf_npm_pypi-", "AKIA", "password=!",
    "authorization: basic ", "hooks.slack.com/services/", "secret = \"", "PASSWORD=\\",
)  # fmt: skip


def test_hostile_texts_take_time_in_proportion() -> None:
    """Compared with harmless texts: with backtracking they would take thousands of times longer."""
    size = 60_000
    taken("warm")
    for piece in HOSTILE:
        text = piece * (size // len(piece))
        began = time.process_time()
        taken(text)
        assert time.process_time() - began < 2, piece  # about 0.03, and minutes if it were squared


KINDS = {
    "AWS key": [f"{begin}{'A' * 16}" for begin in ("AKIA", "ASIA")],
    "GitHub token": [
        *(f"gh{letter}_{lot(20)}" for letter in "pousr"),
        f"github_pat_{lot(20)}",
    ],
    "GitLab token": [f"gl{kind}-{lot(20)}" for kind in ("pat", "dt", "rt", "cbt", "ptt")],
    "Slack token": [
        *(f"xox{letter}-{lot(10)}" for letter in "abeprs"),
        f"xoxe.{lot(10)}",
        f"xapp-{lot(10)}",
    ],
    "Google key": [f"AIza{lot(35)}", f"ya29.{lot(20)}", f"GOCSPX-{lot(20)}"],
    "Stripe key": [
        *(f"{kind}_{lot(16)}" for kind in ("sk_live", "rk_live", "sk_test", "rk_test", "whsec"))
    ],
    "API key": [
        *(f"sk-{kind}-{lot(16)}" for kind in ("ant", "proj", "svcacct", "admin", "or")),
        f"sk-{lot(20)}",
    ],
    "JWT": [f"eyJ{lot(8)}.eyJ{lot(8)}.{lot(10)}"],
    "npm token": [f"npm_{lot(30)}"],
    "PyPI token": [f"pypi-{lot(40)}A"],
    "token": [
        "hf_" + "a" * 34, "dop_v1_" + "a" * 64, f"SG.{lot(16)}.{lot(40)}", f"dckr_pat_{lot(20)}",
        "shpat_" + "a" * 32, f"hvs.{lot(24)}", "AGE-SECRET-KEY-1" + "A" * 50,
        "rubygems_" + "a" * 48,
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_known_token_format_is_named(kind: str) -> None:
    for token in KINDS[kind]:
        assert taken(token) == mark(kind), token
        assert taken(f"a {token}, b") == f"a {mark(kind)}, b", token
        assert taken(f"a{token}") == f"a{token}", token  # the end of another word


def test_only_the_value_of_a_named_secret_is_removed() -> None:
    key, sig = lot(30), lot(30)
    assert taken(f"AccountKey={key};x") == f"AccountKey={mark('Azure key')};x"
    assert taken(f"SharedAccessKey={key};x") == f"SharedAccessKey={mark('Azure key')};x"
    assert taken(f"a?sig={sig}&x") == f"a?sig={mark('Azure key')}&x"
    hook = f"hooks.slack.com/workflows/{lot(40)}"
    assert taken(hook) == f"hooks.slack.com/workflows/{mark('Slack webhook')}"
    assert taken(f"bearer {lot(16)} x") == f"bearer {mark('authorization')} x"
    assert taken(f"Bearer%20{lot(16)}&x") == f"Bearer%20{mark('authorization')}&x"
    assert taken("Authorization: Basic dXNlcjpw x") == (
        f"Authorization: Basic {mark('authorization')} x"
    )
    assert taken("PASSWORD=hunter22, x") == f"PASSWORD={mark('secret')}, x"


def test_text_between_named_secrets_is_kept() -> None:
    secret = mark("secret")
    lines = ["one", "DB_PASSWORD=hunter22", "two", f"api_key = '{lot(30)}'", "three token", ""]
    left = ["one", f"DB_PASSWORD={secret}", "two", f"api_key = '{secret}'", "three token", ""]
    assert taken("\n".join(lines)) == "\n".join(left)
    assert (
        taken(f"token={lot(20)} SECRET_TOKEN={lot(21)}") == f"token={secret} SECRET_TOKEN={secret}"
    )
    assert taken("A_PASSWORD=hunter22\nB_PASSWORD=hunter33") == (
        f"A_PASSWORD={secret}\nB_PASSWORD={secret}"
    )


def test_letters_that_become_two_in_lower_case_do_not_shift_offsets() -> None:
    assert taken("İİİİ\nDB_PASSWORD=hunter22\nİ") == f"İİİİ\nDB_PASSWORD={mark('secret')}\nİ"


def test_private_keys_go_from_their_first_line_to_their_last() -> None:
    key = mark("private key")
    assert taken(f"one\n{PEM}\ntwo\n{PEM}\nthree") == f"one\n{key}\ntwo\n{key}\nthree"
    first, second = PEM.split("\n")[:-1], PEM.split("\n")[1:]
    assert taken("\n".join(["one", *first, "two"])) == f"one\n{key}\ntwo"  # its end is missing
    assert taken("\n".join(["one", *second, "two"])) == f"one\n{key}\ntwo"  # its beginning is
    header = PEM.replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\n", 1)
    assert taken(f"{header}\nx") == f"{key}\nx"
    other = "-------\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    assert taken(f"{other}{PEM}\n{other}") == f"{other}{key}\n{other}"
    words = "-----BEGIN PRIVATE KEY-----\nnot\na\nkey\nat all\n"
    assert taken(words) == words
