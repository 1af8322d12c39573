"""Say why a model on a local server makes no tool calls, and which chat template helps.

A chat template turns messages and tools into the prompt of a model. llama.cpp also derives from it
the form in which the model writes calls. If the model writes them in another form, the calls stay
text. The advice depends on the form that came back and on the template that the server reports,
not on the name of the model.

The templates in `templates` are for llama.cpp and LM Studio. Ollama has its own template language.
"""

from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from ..lazy import dataclass, regex

FENCE = "chatml-fence"
TEMPLATES = (FENCE,)  # all have the tokens of ChatML
_CHATML = "<|im_start|>"
_FOLDER = Path(__file__).resolve().with_name("templates")
_TAG_BEFORE = regex(r"<([\w:.-]{1,40})>\s*[\[{\s]*\Z")
_FUNCTION_TAG = regex(r"<(function|invoke|tool_call)[ =>]")

Kind = Literal["llama.cpp", "ollama", "lmstudio", ""]


def template_path(name: str) -> Path:
    """Return the path of a chat template. Raises UsageError for an unknown name."""
    if name not in TEMPLATES:
        raise UsageError(
            f"there is no chat template {name!r}", hint=f"Known templates: {', '.join(TEMPLATES)}."
        )
    return _FOLDER / f"{name}.jinja"


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What a server says about its chat template and the model's ability to call tools."""

    server: Kind = ""
    template: str = field(default="", repr=False)
    has_tools: bool | None = None  # None if it does not say


async def ask_template(
    get: Callable[[str], Awaitable[object]],
    post: Callable[[str, dict[str, Any]], Awaitable[object]],
    name: str,
) -> TemplateReport:
    """Return the report of a local server: llama.cpp, Ollama or LM Studio. `get` and `post` return
    the JSON answer for a path, None on failure.
    """
    props = await get("/props")
    if isinstance(props, dict) and isinstance(template := props.get("chat_template"), str):
        more = props.get("chat_template_tool_use")
        template = more if isinstance(more, str) else template
        return TemplateReport("llama.cpp", template, "tools" in template)
    shown = await post("/api/show", {"model": name})
    if isinstance(shown, dict) and isinstance(shown.get("template"), str):
        return TemplateReport("ollama", shown["template"], _says_tools(shown, "tools"))
    listed = await get("/api/v0/models")
    rows = listed.get("data") if isinstance(listed, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("id") == name:
            return TemplateReport("lmstudio", "", _says_tools(row, "tool_use"))
    return TemplateReport()


def _says_tools(row: dict[str, Any], ability: str) -> bool | None:
    abilities = row.get("capabilities")
    return ability in abilities if isinstance(abilities, list) else None


def written_form(text: str, tool: str) -> str:
    """Return how a text has a call of a tool: "fence", "json" or the name of a tag. "" if it has
    none.
    """
    place = text.find(f'"{tool}"')
    if place < 0:
        tag = _FUNCTION_TAG.search(text)
        return tag[1] if tag and tool in text[tag.start() :] else ""
    before = text[: text.rfind("{", 0, place) + 1]
    if tag := _TAG_BEFORE.search(before[-200:]):
        return str(tag[1])
    if before.count("```") % 2:
        return "fence"
    return "json" if before else ""


def template_advice(report: TemplateReport, form: str) -> str:
    """Return what a user can do about a model that made no call. `form` is the form of the call in
    its reply.
    """
    shown = {"fence": "in a code fence", "json": "as JSON"}.get(form, f"in the tag <{form}>")
    did = f"the model wrote the call as text, {shown}" if form else "the model made no call"
    if report.server == "llama.cpp":
        return f"{did}. {_for_llama(report, form)}"
    if report.server == "ollama":
        return f"{did}. {_for_ollama(report)}"
    if report.server == "lmstudio":
        return f"{did}. {_for_lm_studio()}"
    return (
        f"{did}. Start the server with its option for tool calls, and with a chat template and a "
        "parser for this model (vLLM: --enable-auto-tool-choice --tool-call-parser NAME)."
    )


def _for_llama(report: TemplateReport, form: str) -> str:
    if not form and report.has_tools:
        return "Its chat template has tools, so try a larger model."
    if form == "tool_call" or _CHATML not in report.template:
        return (
            "No template of ctxagent fits this model. Take a chat template with tools from the "
            "page of the model: llama-server … --jinja --chat-template-file FILE"
        )
    path = template_path(FENCE)
    if report.template.strip() == path.read_text("utf-8").strip():
        return "The server already has the best template of ctxagent, so try a larger model."
    return (
        "llama.cpp reads the call with another chat template. Start the server with: "
        f"llama-server … --jinja --chat-template-file {path}"
    )


def _for_ollama(report: TemplateReport) -> str:
    if report.has_tools:
        why = "has tools, but the model writes calls in another form"
    else:
        why = "has no tools"
    return (
        f"Ollama's template of this model {why}. Choose another model with the label `tools` at "
        "ollama.com/search?c=tools, or serve this model with llama.cpp. A template for llama.cpp "
        "does not work in Ollama."
    )


def _for_lm_studio() -> str:
    path = template_path(FENCE)
    return (
        "Choose a model with the mark for tool use. For a model with ChatML tokens you can also "
        f"paste {path} at My Models, settings of the model, Prompt Template."
    )
