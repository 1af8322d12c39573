"""The former name of `ctxagent.api.extension`, for extensions that were written before."""

from .api.extension import *  # noqa: F403
from .api.extension import LiveSession as SessionHandle  # its former name
from .api.extension import __all__ as _names

__all__ = [*_names, "SessionHandle"]
