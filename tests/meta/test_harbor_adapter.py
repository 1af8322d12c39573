"""The adapter for Harbor: what it runs and tells, with stand-ins for Harbor's classes as they are
named in the versions that it works with. `benchmarks/harbor/run.py` tries it with the real ones."""

import asyncio
import json
import logging
import runpy
import shlex
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pydantic
import pytest

ADAPTER = Path(__file__).resolve().parents[2] / "benchmarks" / "harbor" / "ctxagent_agent.py"
NAMES = {  # of the module with the connection's class, and of the address that the user gives
    "0.24": ("model_connection", "configured_base_url"),
    "0.25 and 0.26": ("agent_auth_resolution", "user_supplied_base_url"),
}


class Agent:
    """The base class of installed agents."""

    def __init__(self, logs: Path, connection: Any, options: Any) -> None:
        self.environment_logs_dir = self.logs_dir = logs
        self.model_connection, self.options = connection, options
        self.model_name, self.logger = "anthropic/claude-x", logging.getLogger("harbor")
        self.ran: list[tuple[str, dict[str, str]]] = []

    def build_cli_flags(self) -> str:
        return "--max-turns 20"

    async def exec_as_agent(self, environment: Any, command: str, env: dict[str, str]) -> None:
        self.ran.append((command, env))


@dataclass
class Spec:
    default_provider: str


def put(monkeypatch: pytest.MonkeyPatch, name: str, **values: Any) -> None:
    """Put a module in place, with the packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = []
        monkeypatch.setitem(sys.modules, package.__name__, package)
    module = ModuleType(name)
    vars(module).update(values)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(params=list(NAMES))
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    module, address = NAMES[request.param]
    put(
        monkeypatch,
        "harbor.agents.installed.base",
        ApiOverloadedError=Exception,
        ApiRateLimitError=Exception,
        BaseInstalledAgent=Agent,
        ErrorPattern=lambda *given: given,
        with_prompt_template=lambda function: function,
    )
    put(monkeypatch, f"harbor.agents.{module}", ModelConnectionSpec=Spec)
    cli = SimpleNamespace
    put(
        monkeypatch,
        "harbor.agents.options",
        Cli=lambda flag: cli(flag=flag),
        InstalledAgentOptions=pydantic.BaseModel,
    )
    put(monkeypatch, "harbor.environments.base", BaseEnvironment=object)
    put(monkeypatch, "harbor.models.agent.context", AgentContext=SimpleNamespace)
    return module, address


def test_a_task_is_run_once_and_told(names: tuple[str, str], tmp_path: Path) -> None:
    found = runpy.run_path(str(ADAPTER))
    options = found["CtxagentOptions"](wheel="w.whl", settings={"compact.preset": "lean"})
    connection = SimpleNamespace(api_key="k", **{names[1]: "http://127.0.0.1:1/v1"})
    agent = found["Ctxagent"](tmp_path, connection, options)
    asyncio.run(agent.run("Do; it's odd.", None, None))
    ((command, env),) = agent.ran
    assert env == {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    words = shlex.split(command)
    assert "--print=Do; it's odd." in words
    assert words[words.index("--session-id") + 1] == "harbor"
    settings = [value for flag, value in pairwise(words) if flag == "-c"]
    assert "compact.preset=lean" in settings
    assert "model.id=claude-x" in settings
    assert "--max-turns" in words
    connection.api_key = None
    setattr(connection, names[1], None)
    assert agent._environment() == {}
    result = {
        "usage": {"input": 10, "cache_read": 5, "cache_creation": 2, "output": 3},
        "cost_usd": 0.5, "session_id": "harbor", "status": "ok", "exit_code": 0, "calls": 3,
        "tool_calls": 2, "compaction": {},
    }  # fmt: skip
    context = SimpleNamespace()
    agent.populate_context_post_run(context)
    assert vars(context) == {}, "without a result nothing is told"
    (tmp_path / "result.json").write_text(json.dumps(result))
    agent.populate_context_post_run(context)
    assert (context.n_input_tokens, context.n_cache_tokens) == (17, 5)
    assert (context.n_output_tokens, context.cost_usd) == (3, 0.5)
    assert context.metadata["calls"] == 3
