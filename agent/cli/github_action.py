"""The step of the GitHub Action in `action.yml`: run a task and post the result.

A comment that starts with the trigger, by a user with write access, gives the task, and a comment
below it gets the result. For all other events (a schedule, a manual run) the task is the input
`task`, and the job summary gets the result.

All input comes from environment variables: the inputs as `INPUT_<NAME>`, and those set by GitHub
(https://docs.github.com/actions/reference/workflows-and-actions/variables). Text by outsiders never
becomes part of a command line or of the task.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...tools.system.files import private_opener
from ...tools.system.phrasing import shorten
from ...tools.system.unicode import reveal_invisible
from ..errors import CtxagentError, UsageError
from ..lazy import dataclass, regex
from .options import run_and_exit

if TYPE_CHECKING:
    from markdown_it.token import Token

DEFAULT_TRIGGER = "/ctxagent"
MAX_COMMENT_CHARS = 65_536  # GitHub's limit
MAX_ISSUE_CHARS = 20_000  # of the issue's text in the task
MAX_FENCE_CHARS = 20  # room to close a code block that is cut
MAX_EVENT_BYTES = 16 << 20
REQUEST_TIMEOUT_S = 60
WRITERS = ("OWNER", "MEMBER", "COLLABORATOR")  # trusted authors, if they have write access
WRITE_PERMISSIONS = ("admin", "maintain", "write")
# Variables hidden from the agent and its commands: our inputs, the job's tokens, and the files
# through which a step changes later steps.
_KEPT_BACK = regex(
    r"INPUT_.*|ACTIONS_.*|GITHUB_(?:TOKEN|ENV|OUTPUT|PATH|STATE|STEP_SUMMARY)|GH_TOKEN"
)
_AT = regex(r"(?<![A-Za-z0-9])@|&(?:#0*64|#[xX]0*40|commat);?")


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """The task, and the issue or pull request to post the result to."""

    task: str
    issue: int | None = None  # None for the summary of the job


class Skipped(Exception):
    """The event contains no task; the message is the reason."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects, because the token is for one address only."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def main() -> NoReturn:
    """Run the step, and exit with the exit code of the agent, or 0 for an event without a task."""
    run_and_exit(lambda: _run(os.environ))


def _run(env: Mapping[str, str]) -> int:
    try:
        request = find_request(env)
    except Skipped as why:
        print(f"nothing to do: {why}")
        _write_output(env, status="skipped", code=0)
        return 0
    result = _run_agent(env, request.task)
    code = int(result["exit_code"])
    _write_output(env, status=str(result["status"]), code=code)
    text = comment_of(result, _address_of_run(env))
    if path := env.get("GITHUB_STEP_SUMMARY"):
        _append(path, text)
    if request.issue is not None:
        _request_api(env, f"issues/{request.issue}/comments", {"body": text})
    return code


def find_request(env: Mapping[str, str]) -> ActionRequest:
    """Return the request in the event. Raises Skipped if there is none, and UsageError for an event
    that is unreadable or has no task.
    """
    task = env.get("INPUT_TASK", "").strip()
    if env.get("GITHUB_EVENT_NAME") != "issue_comment":
        if not task:
            raise UsageError("there is no task", hint="Set the input `task` of the action.")
        return ActionRequest(task)
    event = _event(env)
    comment, issue = _object_at(event, "comment"), _object_at(event, "issue")
    trigger = env.get("INPUT_TRIGGER", "").strip() or DEFAULT_TRIGGER
    body = str(comment.get("body") or "").strip()
    said = body.removeprefix(trigger)
    if event.get("action") != "created":
        raise Skipped("the comment is not a new one")
    if not body.startswith(trigger) or (said and not said[0].isspace()):
        raise Skipped(f"the comment does not begin with {trigger}")
    _check_writer(env, comment)
    if not (said := said.strip() or task):
        raise UsageError("there is no task", hint=f"Write the task after {trigger}.")
    number = issue.get("number")
    if not isinstance(number, int):
        raise UsageError(
            "the event names no issue",
            hint="Run the action on issue_comment, issues or workflow_dispatch.",
        )
    return ActionRequest(f"{said}\n\n{_comment_origin(comment, issue)}", number)


def _check_writer(env: Mapping[str, str], comment: Mapping[str, Any]) -> None:
    """Raise Skipped for a comment by a bot or by a user without write access to the repository."""
    user = _object_at(comment, "user")
    name = str(user.get("login", ""))
    if user.get("type") != "User" or not re.fullmatch(r"[A-Za-z0-9-]+(_[a-z0-9]+)?", name):
        raise Skipped("the comment is not by a user")
    if comment.get("author_association") not in WRITERS:
        raise Skipped(f"{name} is not an owner, member or collaborator")
    found = _request_api(env, f"collaborators/{name}/permission")
    if found.get("permission") not in WRITE_PERMISSIONS:
        raise Skipped(f"{name} may not write to this repository")


def _comment_origin(comment: Mapping[str, Any], issue: Mapping[str, Any]) -> str:
    """Return a text about the origin of the comment. Include the issue's text only if its author is
    the owner, a member or a collaborator.
    """
    kind = "pull request" if issue.get("pull_request") else "issue"
    name = _object_at(comment, "user").get("login")
    head = f"[This is a comment by {name} on the {kind} #{issue.get('number')}"
    if issue.get("author_association") not in WRITERS:
        return f"{head}, whose text is left out: its author is no member of the project.]"
    title = " ".join(str(issue.get("title") or "").split())
    body = shorten(str(issue.get("body") or ""), MAX_ISSUE_CHARS)
    return f"{head}, which says:]\n{title}\n\n{body}".rstrip()


def _run_agent(env: Mapping[str, str], task: str) -> Mapping[str, Any]:
    """Run the task and return the JSON result. Raises CtxagentError if there is no result."""
    arguments = ["-p", "-", "--output-format=json"]
    for name in ("model", "permission-mode", "max-turns", "max-budget-usd"):
        if value := env.get(_variable(name), "").strip():
            arguments.append(f"--{name}={value}")
    for name in ("allow", "deny"):
        rules = env.get(_variable(name), "").splitlines()
        arguments += [f"--{name}={rule.strip()}" for rule in rules if rule.strip()]
    own = {name: value for name, value in env.items() if not _KEPT_BACK.fullmatch(name)}
    marker = secrets.token_hex(16)
    print(f"::stop-commands::{marker}", flush=True)  # the runner ignores commands in the output
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "ctxagent", *arguments],
            env=own,
            input=task.encode("utf-8", "replace"),
            stdout=subprocess.PIPE,
        )
    finally:
        print(f"\n::{marker}::", flush=True)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        result = None
    if not isinstance(result, dict) or "exit_code" not in result:
        hint = "See its messages above."
        raise CtxagentError(f"the agent ended with {done.returncode} and no result", hint=hint)
    return result


def comment_of(result: Mapping[str, Any], address: str) -> str:
    """Return a result as a safe GitHub comment: invisible characters are escaped, nobody is
    mentioned, and the length is at most `MAX_COMMENT_CHARS`. `address` is the URL of the full log.
    """
    cost = result.get("cost_usd")
    facts = [f"status {result['status']}", str(result.get("model") or "")]
    facts += [f"${cost:.2f}"] if isinstance(cost, int | float) else []
    head = " · ".join(filter(None, ["**ctxagent**", *facts, f"[log]({address})"]))
    error = _object_at(result, "error").get("message")
    parts = [head, *([f"> {shorten(str(error), 2_000)}"] if error else []), result.get("result")]
    text = _escape_markdown("\n\n".join(str(part).strip() for part in parts if part))
    if len(text) <= MAX_COMMENT_CHARS:
        return text
    note = f"\n\n**ctxagent** · cut: {len(text):,} characters exceed the limit of a comment"
    cut = text[: MAX_COMMENT_CHARS - len(note) - MAX_FENCE_CHARS]
    fence = _open_fence(cut)
    return f"{cut}\n{fence}{note}" if 0 < len(fence) < MAX_FENCE_CHARS else cut + note


def _escape_markdown(text: str) -> str:
    """Escape invisible characters in Markdown and, outside of code blocks, mentions and HTML
    comments.
    """
    text = reveal_invisible(text.replace("\r\n", "\n").replace("\r", "\n"))
    lines, code = text.split("\n"), _lines_of_code(text)
    return "\n".join(
        line if number in code else _AT.sub("＠", line).replace("<!--", "&lt;!--")
        for number, line in enumerate(lines)
    )


def _lines_of_code(text: str) -> set[int]:
    """Return the indexes of the lines in code blocks, from 0."""
    blocks = [each.map for each in _blocks_of_code(text) if each.map]
    return {number for first, end in blocks for number in range(first, end)}


def _open_fence(text: str) -> str:
    """Return the fence that closes the code block at the end of a text, or ""."""
    last = text.count("\n") + 1
    fences = (each for each in _blocks_of_code(f"{text}\nx") if each.type == "fence")
    return next((each.markup for each in fences if each.map and last < each.map[1]), "")


def _blocks_of_code(text: str) -> "list[Token]":
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    return [each for each in tokens if each.type in ("fence", "code_block")]


def _request_api(env: Mapping[str, str], path: str, body: Any = None) -> Mapping[str, Any]:
    """Send a GET request to GitHub's REST API for the repository, or a POST request with a body.
    Raises CtxagentError.
    """
    base, repository = env.get("GITHUB_API_URL", ""), env.get("GITHUB_REPOSITORY", "")
    token = env.get(_variable("github-token"), "")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository) or not base or not token:
        hint = "Set `github-token`, and run this in a workflow of GitHub."
        raise UsageError("GITHUB_REPOSITORY, GITHUB_API_URL or the token is missing", hint=hint)
    request = urllib.request.Request(
        f"{base}/repos/{repository}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "User-Agent": "ctxagent",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(
            request, timeout=REQUEST_TIMEOUT_S
        ) as answer:
            found = json.loads(answer.read(MAX_EVENT_BYTES))
    except (urllib.error.URLError, OSError, ValueError) as error:
        hint = "The workflow needs the permission `issues: write` (`pull-requests: write`)."
        raise CtxagentError(f"GitHub: {path}: {error}", hint=hint) from None
    return found if isinstance(found, dict) else {}


def _event(env: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        with Path(env.get("GITHUB_EVENT_PATH", "")).open("rb") as file:
            found = json.loads(file.read(MAX_EVENT_BYTES))
    except (OSError, ValueError) as error:
        hint = "GITHUB_EVENT_PATH names it in a workflow of GitHub."
        raise UsageError(f"the event cannot be read: {error}", hint=hint) from None
    return found if isinstance(found, dict) else {}


def _object_at(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = whole.get(name)
    return found if isinstance(found, dict) else {}


def _variable(name: str) -> str:
    return f"INPUT_{name.upper().replace('-', '_')}"


def _write_output(env: Mapping[str, str], *, status: str, code: int) -> None:
    if path := env.get("GITHUB_OUTPUT"):
        _append(path, f"status={status}\nexit-code={code}")


def _append(path: str, text: str) -> None:
    """Append a text to a file of the runner."""
    with open(path, "a", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{text}\n")


def _address_of_run(env: Mapping[str, str]) -> str:
    server, repository = env.get("GITHUB_SERVER_URL", ""), env.get("GITHUB_REPOSITORY", "")
    return f"{server}/{repository}/actions/runs/{env.get('GITHUB_RUN_ID', '')}"


if __name__ == "__main__":
    main()
