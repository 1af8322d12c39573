"""Edits settings files. Comments, order and layout of a file stay."""

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...tools.system.files import make_private_folder, replacing
from ..errors import ConfigError
from . import toml_lines
from .load import rules_in_file
from .trust import read_untrusted

USER_FILE_MODE = 0o600
_BOM = b"\xef\xbb\xbf"


def read_settings_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if it is missing. Raises ConfigError."""
    try:
        return read_untrusted(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError("is a broken symlink", where=str(path)) from None
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None


def with_section(path: Path, data: bytes, section: str, change: Callable[[Any], None]) -> bytes:
    """Return a settings file with one section edited by `change` and the rest unchanged. Raises
    ConfigError if the file is invalid before or after the edit.
    """
    import tomlkit

    wanted, _ = toml_lines.parse_toml(data, path)
    rules_in_file(path, data)  # raises if there is anything but settings in it
    before = copy.deepcopy(wanted.get(section, {}))
    change(wanted.setdefault(section, {}))
    if wanted[section] == before:
        return data
    text = data.removeprefix(_BOM).decode()
    document = tomlkit.parse(text + "\n" * bool(text and not text.endswith("\n")))
    if section not in document:
        if text:
            document.add(tomlkit.nl())
        document.add(section, tomlkit.table())
    change(document[section])
    written = tomlkit.dumps(document)
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        written = re.sub(r"(?<!\r)\n", "\r\n", written)
    changed = _BOM * data.startswith(_BOM) + written.encode()
    rules_in_file(path, changed)
    if toml_lines.parse_toml(changed, path)[0] != wanted:
        raise ConfigError(
            "its layout does not allow a change here",
            where=str(path),
            hint=f"Edit it yourself, below [{section}].",
        )
    return changed


def write_settings_file(path: Path, data: bytes, *, new_mode: int) -> None:
    """Replace a settings file, or create it with mode `new_mode`. A symlink is kept. Raises
    ConfigError.
    """
    target = Path(os.path.realpath(path))
    try:
        make_private_folder(target.parent)
        with replacing(target, new_mode=new_mode, keep_mode=True) as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(path)) from None
