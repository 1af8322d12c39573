"""The chat templates for local servers, and which one the doctor names."""

import asyncio
import json
import re
from typing import Any

import jinja2
import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.models.chat_templates import (
    FENCE,
    TemplateReport,
    ask_template,
    template_advice,
    template_path,
    written_form,
)

CALL = '{"name": "ping", "arguments": {"word": "walrus"}}'
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (f"```json\n{CALL}\n```", "fence"),
        (f"I call it:\n```\n[{CALL}]", "fence"),
        (f"<tools>\n{CALL}\n</tools>", "tools"),
        (f"<tool_call>\n{CALL}\n</tool_call>", "tool_call"),
        (f"```\nx\n```\n{CALL.replace('{', '{{')}", "json"),
        (CALL, "json"),
        ("<function=ping><parameter=word>walrus</parameter></function>", "function"),
        ("walrus", ""),
        ('The function "ping" answers.', ""),
    ],
)
def test_the_form_of_a_written_call(text: str, form: str) -> None:
    assert written_form(text, "ping") == form


@pytest.mark.parametrize(
    ("answers", "report"),
    [
        ({"/props": {"chat_template": CHATML}}, TemplateReport("llama.cpp", CHATML, False)),
        (
            {"/props": {"chat_template": "a", "chat_template_tool_use": "tools"}},
            TemplateReport("llama.cpp", "tools", True),
        ),
        (
            {"/api/show": {"template": "{{ .System }}", "capabilities": ["completion"]}},
            TemplateReport("ollama", "{{ .System }}", False),
        ),
        (
            {"/api/v0/models": {"data": [{"id": "q", "capabilities": ["tool_use"]}]}},
            TemplateReport("lmstudio", "", True),
        ),
        ({"/props": {"error": "not found"}, "/api/show": []}, TemplateReport()),
    ],
)
def test_what_a_server_reports(answers: dict[str, Any], report: TemplateReport) -> None:
    async def get(path: str) -> object:
        return answers.get(path)

    async def post(path: str, body: dict[str, Any]) -> object:
        assert body == {"model": "q"}
        return answers.get(path)

    assert asyncio.run(ask_template(get, post, "q")) == report


LLAMA = TemplateReport("llama.cpp", CHATML, False)
OWN = TemplateReport("llama.cpp", template_path(FENCE).read_text(), True)


@pytest.mark.parametrize(
    ("report", "form", "says"),
    [
        (LLAMA, "fence", f"in a code fence. llama.cpp reads the call .* {template_path(FENCE)}$"),
        (LLAMA, "tools", f"in the tag <tools>.* --jinja --chat-template-file .*{FENCE}.jinja$"),
        (LLAMA, "tool_call", "No template of ctxagent fits this model"),
        (LLAMA, "", f"^the model made no call.*{FENCE}.jinja$"),
        (OWN, "fence", "already has the best template"),
        (TemplateReport("llama.cpp", "<|im_start|> tools", True), "", "try a larger model"),
        (TemplateReport("llama.cpp", "[INST]", True), "json", "from the page of the model"),
        (TemplateReport("ollama", "", False), "json", "has no tools. Choose another model"),
        (TemplateReport("ollama", "", True), "fence", "writes calls in another form"),
        (TemplateReport("lmstudio"), "fence", f"paste {template_path(FENCE)} at My Models"),
        (TemplateReport(), "json", "--tool-call-parser"),
    ],
)
def test_the_advice_names_the_next_step(report: TemplateReport, form: str, says: str) -> None:
    assert re.search(says, template_advice(report, form), re.S)


def test_an_unknown_template_is_an_error() -> None:
    with pytest.raises(UsageError, match="no chat template 'chatml'"):
        template_path("chatml")


def test_the_template_shows_every_part_of_a_conversation() -> None:
    call = {"name": "ping", "arguments": {"word": "walrus"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Call ping twice."},
        {
            "role": "assistant",
            "content": "I do.",
            "tool_calls": [
                {"function": call},
                {"function": {**call, "arguments": json.dumps(call["arguments"])}},
            ],
        },
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
    ]
    environment = jinja2.Environment()
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    template = environment.from_string(template_path(FENCE).read_text())
    tools = [{"type": "function", "function": {"name": "ping"}}]
    shown = template.render(messages=messages, tools=tools, add_generation_prompt=True)
    head, rest = shown.split("<|im_end|>\n", 1)
    assert head.startswith("<|im_start|>system\nBe brief.\n\n## Functions\n")
    assert json.dumps(tools[0]) in head
    form = f"```json\n{json.dumps(call)}\n```"
    assert rest == (
        "<|im_start|>user\nCall ping twice.<|im_end|>\n"
        f"<|im_start|>assistant\nI do.\n{form}\n{form}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    plain = template.render(messages=messages[1:2])
    assert plain == (
        "<|im_start|>system\nYou are a coding agent.<|im_end|>\n"
        "<|im_start|>user\nCall ping twice.<|im_end|>\n"
    )
