"""Programs and their environment, connections, and code that others wrote."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.extensions.server_process import ExitInfo, ServerProcess, run_server
    from ..tools.system import end_with_parent, tls
    from ..tools.system.descriptors import raise_limit
    from ..tools.system.environment import child_environment, git_variables, is_secret
    from ..tools.system.foreign_code import foreign_code
    from ..tools.system.process_table import birth
    from ..tools.system.programs import describe_program, isolated_python, own_environment, program
    from ..tools.system.spawn import Enclosed
    from ..tools.system.take_turn import in_thread
    from ..tools.system.tls import (
        CertificatesUnreadable,
        certificate_problem,
        certificates_variable,
        tls_context,
        tls_options,
    )
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "CertificatesUnreadable",
    "Enclosed",
    "ExitInfo",
    "ServerProcess",
    "birth",
    "certificate_problem",
    "certificates_variable",
    "child_environment",
    "describe_program",
    "end_with_parent",
    "foreign_code",
    "git_variables",
    "in_thread",
    "is_secret",
    "isolated_python",
    "own_environment",
    "program",
    "raise_limit",
    "run_server",
    "tls",
    "tls_context",
    "tls_options",
]
