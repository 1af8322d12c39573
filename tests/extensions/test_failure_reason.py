"""The reason in the output of failed programs."""

import pytest

from ctxagent.agent.extensions.server_process import failure_reason

NPM = """\
npm warn exec The following package was not found and will be installed: nope-at-all@1.0.0
npm error code E404
npm error 404 Not Found - GET https://registry.example/nope-at-all - Not found
npm error 404
npm error A complete log of this run can be found in: /home/me/.npm/_logs/1.log
"""
NODE = """\
node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module '/srv/gone.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
}

Node.js v22.1.0
"""
PYTHON = """\
Starting the server, version 1.2
Traceback (most recent call last):
  File "server.py", line 3, in <module>
    raise ConfigError("no key: set one")
ModuleNotFoundError: No module named 'fastmcp'
"""
UV = """\
  × No solution found when resolving tool dependencies:
  ╰─▶ Because nope was not found in the package registry and you require nope, we can conclude
      that your requirements are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (NPM, "npm error 404 Not Found - GET https://registry.example/nope-at-all - Not found"),
        (NODE, "Error: Cannot find module '/srv/gone.js'"),
        (PYTHON, "ModuleNotFoundError: No module named 'fastmcp'"),
        (UV, "╰─▶ Because nope was not found in the package registry and you require nope, we can "
             "conclude"),
        ("sh: 1: nope: not found\n", "sh: 1: nope: not found"),
        ("WARN invalid cache entry: skipped\nlistening\nout of memory\n", "out of memory"),
        ("\x1b[31merror: bad key\x1b[0m\n", "\ufffd[31merror: bad key\ufffd[0m"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_is_found_by_the_structure_of_the_output(output: str, reason: str) -> None:
    assert failure_reason(output) == reason
