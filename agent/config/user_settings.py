"""The current settings, and edits of settings files that keep comments, order and layout."""

import copy
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...tools.system.files import make_private_folder, replacing
from ..errors import ConfigError
from ..lazy import regex
from .keys import value_text
from .load import (
    LoadedSettings,
    SettingRow,
    explain_settings,
    parse_toml,
    raw_value,
    rules_in_file,
    setting_key,
)
from .places import user_file
from .settings import OLD_SECTIONS
from .trust import read_untrusted

USER_FILE_MODE = 0o600
_BOM = b"\xef\xbb\xbf"


def read_settings_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if it is missing. Raises ConfigError."""
    try:
        return read_untrusted(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(
                "is a broken symlink",
                where=str(path),
                hint="Remove the link, or create its target.",
            ) from None
        return None
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            hint="Check the permissions of the file.",
        ) from None


def with_section(path: Path, data: bytes, section: str, change: Callable[[Any], None]) -> bytes:
    """Return a settings file with one section edited by `change` and the rest unchanged. Raises
    ConfigError if the file is invalid before or after the edit.
    """
    import tomlkit

    wanted, _ = parse_toml(data, path)
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
    if parse_toml(changed, path)[0] != wanted:
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
        raise ConfigError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            hint="Check the permissions of the folder.",
        ) from None


WHERE = "/settings"  # origin of typed values in error messages
HIDDEN = "(hidden)"  # shown for a value that may be a secret
_EXTENSIONS = "extensions."  # prefix of settings of extensions
_SECRET_NAME = regex(r"key|token|secret|passw|credential|auth", re.IGNORECASE)


class UserSettings:
    """All settings, without secrets. `load` reads them again; `clean` removes secrets from a
    text.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        load: Callable[[], LoadedSettings],
        environ: Mapping[str, str],
        clean: Callable[[str], str],
    ) -> None:
        self.path = user_file(environ)
        self.loaded = loaded
        self._load = load
        self.clean = clean

    def rows(self) -> list[SettingRow]:
        """Return a row for each setting, those of extensions last."""
        rows = [*explain_settings(self.loaded), *_extension_rows(self.loaded)]
        return [
            row._replace(value=self.clean(row.value), untrusted=self.clean(row.untrusted))
            for row in rows
        ]

    def row(self, name: str) -> SettingRow:
        """Return the row of a setting. Raises ConfigError for an unknown setting."""
        key = setting_key(name, WHERE)
        found = next((row for row in self.rows() if row.key == key.name), None)
        return found or SettingRow(key.name, "", "default", key.help)

    def own_text(self, name: str) -> str:
        """Return the value in the user's file as typed text. Return "" for no value and for a
        secret.
        """
        given = [
            each
            for each in self.loaded.given
            if each.key.name == name and each.source.rpartition(":")[0] == str(self.path)
        ]
        text = value_text(given[-1].key, given[-1].value) if given else ""
        if _is_secret(name) or self.clean(text) != text or "…@" in text:
            return ""
        return text[1:-1] if text.startswith('"') and "\\" not in text else text

    def set(self, name: str, text: str) -> SettingRow:
        """Set a key in the user's file, or remove it if `text` is "". Return its new row. Raises
        ConfigError for an invalid value or if the file cannot be changed.
        """
        key = setting_key(name, WHERE)
        raw = raw_value(key, text, WHERE) if text else None
        *tables, leaf = key.name.split(".")

        def change(table: Any) -> None:
            for each in tables[1:]:
                table = table.setdefault(each, {})
            if raw is None:
                table.pop(leaf, None)
            else:
                table[leaf] = raw

        before = read_settings_file(self.path)
        data = before or b""
        changed = data
        for section in _sections_in(self.path, data, tables[0], leaf, removes=raw is None):
            changed = with_section(self.path, changed, section, change)
        if changed != data:
            write_settings_file(self.path, changed, new_mode=USER_FILE_MODE)
        try:
            self.loaded = self._load()
        except ConfigError:  # a valid value may conflict with other settings
            _restore(self.path, before)
            raise
        return self.row(name)


def _sections_in(path: Path, data: bytes, section: str, leaf: str, *, removes: bool) -> list[str]:
    """Return the names, current or old, of the sections of a file in which to set a key: the one
    that counts of those that have the key, or else the first. If the key is removed, return all.
    """
    table, _ = parse_toml(data, path)
    names = [section, *(old for old, new in OLD_SECTIONS.items() if new == section)]
    found = [name for name in names if isinstance(table.get(name), dict)]
    having = [name for name in found if leaf in table[name]]
    return having if removes and having else (having or found or [section])[:1]


def _restore(path: Path, data: bytes | None) -> None:
    """Restore the content of a file; None removes the file."""
    if data is None:
        path.unlink(missing_ok=True)
    else:
        write_settings_file(path, data, new_mode=USER_FILE_MODE)


def _extension_rows(loaded: LoadedSettings) -> list[SettingRow]:
    """Return a row for each extension setting that has a value. Values that may be secret by their
    name are hidden.
    """
    given = {each.key.name: each for each in loaded.given if each.key.name.startswith(_EXTENSIONS)}
    return [
        SettingRow(
            name,
            HIDDEN if _is_secret(name) else value_text(each.key, each.value),
            each.source,
            each.key.help,
        )
        for name, each in given.items()
    ]


def _is_secret(name: str) -> bool:
    """Return True if the name of an extension setting suggests a secret."""
    _, _, leaf = name.rpartition(".")
    return name.startswith(_EXTENSIONS) and _SECRET_NAME.search(leaf) is not None
