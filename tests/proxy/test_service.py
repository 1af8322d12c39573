"""The unit of the proxy's service, and the lines for a shell."""

import shlex

from ctxagent.addons.proxy.forward import UPSTREAMS
from ctxagent.addons.proxy.service import shell_lines, unit_text


def lines_of(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


def test_a_command_is_quoted_for_systemd() -> None:
    text = unit_text(["/a b/python", 'x "y" \\', "50%", "$HOME", "two\nlines"], {})
    expected = r'"/a b/python" "x \"y\" \\" "50%%" "$$HOME" "two\nlines"'
    assert lines_of(text, "ExecStart") == [expected]


def test_the_service_has_the_addresses_and_settings_of_the_shell_but_no_key() -> None:
    environ = {
        "XDG_STATE_HOME": "/a b", "https_proxy": "http://p:1", "SSL_CERT_FILE": "/c",
        "CTXAGENT_MODEL_ID": "50% $x", "PATH": "/bin", "ANTHROPIC_API_KEY": "k",
        "CTXAGENT_API_KEY": "k", "OPENAI_BASE_URL": "http://b",
    }  # fmt: skip
    assert lines_of(unit_text(["a"], environ), "Environment") == [
        '"CTXAGENT_MODEL_ID=50%% $x"', '"SSL_CERT_FILE=/c"', '"XDG_STATE_HOME=/a b"',
        '"https_proxy=http://p:1"',
    ]  # fmt: skip


def test_a_shell_sets_a_variable_for_each_upstream() -> None:
    words = [shlex.split(line) for line in shell_lines("http://127.0.0.1:1")]
    assert [word for word, _ in words] == ["export"] * len(UPSTREAMS)
    assert [each.partition("=")[2] for _, each in words] == [
        "http://127.0.0.1:1", "http://127.0.0.1:1/v1", "http://127.0.0.1:1",
    ]  # fmt: skip
