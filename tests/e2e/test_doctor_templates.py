"""`ctxagent doctor --server` with a local server whose model writes calls as text."""

from pathlib import Path

from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Body, Say

FENCE = '```json\n{"name": "ping", "arguments": {"word": "walrus"}}\n```'
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


def findings(place: Place, server: ChatServer) -> dict[str, str]:
    env = place.environ({"LLAMACPP_BASE_URL": f"{server.url}/v1", "LLAMA_API_KEY": "k-1"})
    done = place.run("--model", "llamacpp/walrus", "doctor", "--server", env=env)
    assert done.returncode == 0, done.stderr
    lines = (line for line in done.stdout.splitlines() if not line.startswith(" "))
    return dict(line[6:].split(": ", 1) for line in lines)


def test_the_doctor_names_the_template_that_turns_text_into_calls(tmp_path: Path) -> None:
    """The file that it names is the one that `--template` prints, and exists."""
    place, served = Place(tmp_path), CHATML

    def answer(body: Body) -> Say:
        if not body.get("tools") or "## Functions" in served:
            call = [("ping", {"word": "walrus"})] if body.get("tools") else []
            return Say("" if call else "walrus", tools=call)
        return Say(FENCE)

    with ChatServer(answer, dialect="plain", lenient=True) as server:
        server.own["/props"] = {"chat_template": served}
        before = findings(place, server)
        served = place.run("doctor", "--template", "chatml-fence").stdout.strip()
        assert before["tool calls"] == "supported, but this model did not call one"
        assert before["chat template"] == (
            "the model wrote the call as text, in a code fence. llama.cpp reads the call with "
            "another chat template. Start the server with: llama-server … --jinja "
            f"--chat-template-file {served}"
        )
        served = Path(served).read_text()
        server.own["/props"] = {"chat_template": served}
        after = findings(place, server)
    assert after["tool calls"] == "supported"
    assert "chat template" not in after


def test_an_unknown_template_is_wrong_usage(tmp_path: Path) -> None:
    done = Place(tmp_path).run("doctor", "--template", "walrus")
    assert done.returncode == 2
    assert "Known templates: chatml-fence." in done.stderr
