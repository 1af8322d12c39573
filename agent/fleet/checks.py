"""Check a fleet before it starts: files and variables that tasks refer to, and problems that would
stop every agent before its first request.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.load import LoadedSettings
from ..errors import ConfigError, CtxagentError, UsageError
from ..launch import Budget, LaunchOptions
from ..library.launching import as_flags, check_start, launch_options, load
from .ledger import TaskRecord, is_to_run
from .manifest import Manifest, Task


class StartCheck:
    """Checker of the tasks in a manifest. Each distinct set of settings is checked once."""

    def __init__(
        self,
        cwd: Path,
        environ: Mapping[str, str],
        for_all: Sequence[str],
        dollars: float | None,
        records: Mapping[str, TaskRecord],
    ) -> None:
        """`for_all` are settings for all tasks, `dollars` is the total budget, `records` are tasks
        begun earlier. Raises ConfigError for invalid settings.
        """
        self._cwd, self._environ, self._for_all = cwd, environ, for_all
        self._dollars, self._records = dollars, records
        self._loaded: dict[str, LoadedSettings | UsageError] = {}
        self._launches: dict[tuple[str, bool], tuple[str, LaunchOptions]] = {}
        self.settings = load(cwd, environ, for_all).settings  # of tasks without own settings

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise UsageError for unknown or invalid settings."""
        self._load(settings)

    def check_task(self, manifest: Manifest, task: Task) -> None:
        """Raise UsageError for invalid settings of a task, and for missing files or variables of a
        task that will run.
        """
        key, loaded = self._load(task.settings)
        if not is_to_run(self._records.get(task.id)):
            return
        for name in task.env:
            if name not in self._environ:
                raise UsageError(f"the variable {name} is not set", hint=f"export {name}=…")
        folder = manifest.directory(task)
        if folder is not None and not folder.is_dir():
            raise UsageError(
                f"there is no directory {folder}", hint="`dir` is relative to the manifest."
            )
        source = manifest.source(task)
        if source is not None and ":" not in source and not Path(source).exists():
            hint = "Give a URL, or a path relative to the manifest."
            raise UsageError(f"there is no repository {source}", hint=hint)
        if task.image is not None:
            return  # a container has its own settings, keys and sandbox
        has_budget = self._dollars is not None or task.budget_usd is not None
        if (key, has_budget) not in self._launches:
            budget = Budget(None, 0.0 if has_budget else None)
            launch = launch_options(loaded, self._cwd, self._environ, budget=budget)
            is_own = task.has_own_model or "sandbox.mode" in task.settings
            is_own = is_own or (self._dollars is None and has_budget)
            self._launches[key, has_budget] = f"task {task.id}: " if is_own else "", launch

    def _load(self, settings: Mapping[str, Any]) -> tuple[str, LoadedSettings]:
        """Return (key, settings) for the settings of a task. Equal settings have equal keys. Raises
        UsageError.
        """
        flags = [*self._for_all, *as_flags(settings)]
        key = json.dumps(flags)
        if key not in self._loaded:
            try:
                self._loaded[key] = load(self._cwd, self._environ, flags)
            except ConfigError as error:
                why = error.message.removeprefix(f"{error.where}: ")
                self._loaded[key] = UsageError(f"settings: {why}", hint=error.hint)
        found = self._loaded[key]
        if isinstance(found, UsageError):
            raise found
        return key, found

    def check_agents(self) -> None:
        """Raise NoCredentials or UsageError for a problem that would stop agents before their first
        request.
        """
        for own, launch in self._launches.values():
            try:
                check_start(launch)
            except CtxagentError as error:
                error.message = f"{own}{error.message}"
                raise
