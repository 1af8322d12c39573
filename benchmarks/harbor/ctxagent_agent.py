"""`ctxagent` as an agent of Harbor (https://harborframework.com), which provides tasks, containers
and verdicts. Only Harbor imports this module.

    harbor run --agent ctxagent_agent:Ctxagent --agent-kwarg wheel=dist/ctxagent-0.2.0-….whl …

The README next to it describes the use and the extent of testing.
"""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from harbor.agents.installed.base import (
    ApiOverloadedError,
    ApiRateLimitError,
    BaseInstalledAgent,
    ErrorPattern,
    with_prompt_template,
)
from harbor.agents.options import Cli, InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field
from typing_extensions import override

try:
    from harbor.agents.agent_auth_resolution import ModelConnectionSpec
except ImportError:  # before Harbor 0.25
    from harbor.agents.model_connection import ModelConnectionSpec

PROVIDER = "anthropic"
SESSION = "harbor"  # fixed, so that a second start in the same container continues it
FOLDER = "/installed-agent"
RESULT, SAID, STATE = "result.json", "stderr.txt", "state"
ANSWERED = 3  # exit code of a run that answered although a call was denied
DEPENDENCIES = ("curl", "git")


class CtxagentOptions(InstalledAgentOptions):
    """The options of `--agent-kwarg NAME=VALUE`."""

    wheel: str = Field(description="The wheel of ctxagent, made by `pip wheel . --no-deps`.")
    preset: Annotated[str | None, Cli("--preset")] = Field(default=None, description="A preset.")
    effort: Annotated[Literal["low", "medium", "high", "xhigh", "max"] | None, Cli("--effort")] = (
        Field(default=None, description="How hard the model thinks.")
    )
    max_turns: Annotated[int | None, Cli("--max-turns")] = Field(
        default=None, ge=1, description="The most calls of the model."
    )
    max_budget_usd: Annotated[float | None, Cli("--max-budget-usd")] = Field(
        default=None, ge=0, description="The most dollars."
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings of ctxagent by their names."
    )


class Ctxagent(BaseInstalledAgent):
    """Harbor agent that installs a wheel of ctxagent in the task's environment and runs it."""

    MODEL_CONNECTION = ModelConnectionSpec(default_provider=PROVIDER)
    ERROR_PATTERNS = [  # noqa: RUF012 - Harbor's own form
        ErrorPattern(r"the rate limit is reached", ApiRateLimitError),
        ErrorPattern(r"the (model|server) is overloaded", ApiOverloadedError),
    ]
    options_model = CtxagentOptions
    options: CtxagentOptions

    @staticmethod
    @override
    def name() -> str:
        return "ctxagent"

    @override
    def get_version_command(self) -> str:
        return f"{FOLDER}/bin/ctxagent --version"

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("ctxagent ")

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        """Install the wheel, and a Python if the environment has none of version 3.11 or newer."""
        await self.ensure_system_dependencies(environment, DEPENDENCIES)
        wheel = Path(self.options.wheel)
        target = f"{FOLDER}/{wheel.name}"
        await self.exec_as_root(environment, f"mkdir -p {FOLDER}")
        await environment.upload_file(wheel, target)
        await self.exec_as_root(
            environment,
            "if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; "
            "then command -v uv || curl -LsSf https://astral.sh/uv/install.sh "
            "| env UV_INSTALL_DIR=/usr/local/bin sh; "
            f"UV_PYTHON_INSTALL_DIR={FOLDER}/python uv venv --seed --python 3.12 {FOLDER}; "
            f"else python3 -m venv {FOLDER}; fi "
            f"&& {FOLDER}/bin/python -m pip install --quiet {shlex.quote(target)}",
        )

    @override
    @with_prompt_template
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Do the task, unless it was already done in this environment."""
        logs = self.environment_logs_dir
        settings = {
            "permissions.mode": "bypass",  # the container is the sandbox
            "sandbox.mode": "off",
            "state.dir": logs / STATE,
            **self.options.settings,
        }
        if self.model_name:
            settings["model.id"] = self.model_name.removeprefix(f"{PROVIDER}/")
        words = [f"--print={instruction}", "--session-id", SESSION, "--output-format", "json"]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = f"{FOLDER}/bin/ctxagent {shlex.join(words)} {self.build_cli_flags()}"
        files = f"> {shlex.quote(str(logs / RESULT))} 2> {shlex.quote(str(logs / SAID))}"
        await self.exec_as_agent(
            environment,
            f"mkdir -p {shlex.quote(str(logs))}; {command} < /dev/null {files}; code=$?; "
            f"tail -c 4000 {shlex.quote(str(logs / SAID))} >&2; "
            f"[ $code = {ANSWERED} ] || exit $code",
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        """Return the API key and, if configured, the server's address, without the `/v1` of
        Harbor's default.
        """
        access, found = self.model_connection, dict[str, str]()
        if access.api_key:
            found["ANTHROPIC_API_KEY"] = access.api_key
        # The names in Harbor 0.25 and later, and in older versions.
        names = ("user_supplied_base_url", "configured_base_url")
        if url := next(filter(None, (getattr(access, name, None) for name in names)), None):
            found["ANTHROPIC_BASE_URL"] = url.rstrip("/").removesuffix("/v1")
        return found

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Report tokens, dollars and compaction from the result to Harbor."""
        try:
            result = json.loads((self.logs_dir / RESULT).read_text())
        except (OSError, ValueError):
            self.logger.debug(f"ctxagent has left no {RESULT}")
            return
        usage = result["usage"]
        cached = usage.get("cache_read", 0)
        context.n_cache_tokens = cached
        context.n_input_tokens = usage["input"] + usage.get("cache_creation", 0) + cached
        context.n_output_tokens = usage["output"]
        context.cost_usd = result["cost_usd"]
        names = ("session_id", "status", "exit_code", "calls", "tool_calls", "compaction")
        context.metadata = {name: result[name] for name in names}
