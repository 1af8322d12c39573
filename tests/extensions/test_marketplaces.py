"""Marketplaces: the sources of their plugins, and refused sources."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.compat.marketplaces import RECORD_FILE, Marketplace, read_marketplaces
from ctxagent.addons.compat.plugin_fetch import FileSource
from ctxagent.agent.errors import ConfigError, UsageError

SHA = "a" * 40
URL = "https://x/y"
HUB = "https://github.com/a/b"


def market(source: str, **more: Any) -> Marketplace:
    return Marketplace("tools", source, {"plugins": [], **more}, ref="v1", commit=SHA)


def place_of(shop: Marketplace, source: Any) -> FileSource:
    listed = {**shop.listed, "plugins": [{"name": "kit", "source": source}]}
    found = Marketplace(shop.name, shop.source, listed, shop.ref, shop.commit)
    return found.source_of(found.offer("kit"))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("../../secret", "leads out of the marketplace"),
        ("/etc", "leads out of the marketplace"),
        ("./gone", "which is not a folder"),
        ("./out", "leads out of the marketplace"),
        ("./a\\b", "has an invalid path"),
        (
            {"source": "url", "url": "ext::sh -c touch% made"},
            "git helper programs are not supported",
        ),
        ({"source": "url", "url": "http://x/y"}, "http:// is not supported"),
        ({"source": "url", "url": "/etc"}, "which is not a git URL"),
        ({"source": "url", "url": URL, "sha": "--upload-pack=x"}, "which is not a commit"),
        ({"source": "url", "url": URL, "ref": "--upload-pack=x"}, "is not a branch, tag or commit"),
        ({"source": "url", "url": URL, "ref": 1}, "names no repository under url"),
        ({"source": "git-subdir", "url": URL, "path": "../z"}, "leads out of"),
        ({"source": "git-subdir", "url": URL, "path": ["z"]}, "has an invalid path"),
        ({"source": "github", "repo": "-x/y"}, "is an option"),
        ({"source": "npm", "package": "x"}, "comes from 'npm', which is not supported here"),
        (None, "has no source"),
    ],
)
def test_an_invalid_source_is_refused(tmp_path: Path, source: Any, why: str) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "out").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=why.replace(".", r"\.")):
        place_of(market(str(tmp_path / "shop")), source)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("./plugins/kit", FileSource(URL, "v1", SHA, "plugins/kit")),
        ("./", FileSource(URL, "v1", SHA)),
        ("kit", FileSource(URL, "v1", SHA, "root/kit")),
        ({"source": "url", "url": URL, "sha": SHA}, FileSource(URL, commit=SHA)),
        ({"source": "github", "repo": "a/b", "ref": "v2"}, FileSource(HUB, "v2")),
        ({"source": "git-subdir", "url": "a/b", "path": "./p/q/"}, FileSource(HUB, path="p/q")),
    ],
)
def test_where_a_plugin_is(source: Any, place: FileSource) -> None:
    assert place_of(market(URL, metadata={"pluginRoot": "./root"}), source) == place


def test_a_plugin_keeps_its_place_under_another_name() -> None:
    rows = [{"name": "new", "source": "./new"}, {"name": "no name"}, "no row"]
    found = market(URL, plugins=rows, renames={"old": "new"})
    assert [offer.name for offer in found.offers] == ["new"]
    assert found.offer("old").id == "new@tools"
    with pytest.raises(UsageError, match="has no plugin older"):
        found.offer("older")


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    assert read_marketplaces(tmp_path) == {}
    (tmp_path / RECORD_FILE).write_text('{"marketplaces": {"a": {}}}')
    with pytest.raises(ConfigError, match="it is not a record of marketplaces"):
        read_marketplaces(tmp_path)
