"""The parts of a home that commands in the sandbox see: readable toolchain folders, and private
caches in place of the user's. The rest of the home is hidden.

If commands could write to the user's caches, they could escape: shells, package managers and git
hooks run files there. Downloaded packages are readable, so that builds work without the network.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from .sandbox_paths import existing, likely_names, words

# Below a home: programs, their libraries, and settings without keys.
_TOOLCHAINS = words("""
bin .local/bin .local/lib .local/share/pipx .local/pipx .local/share/uv .local/share/mise
.local/share/fnm .local/share/virtualenvs .local/share/pnpm .local/share/rtx .local/share/hatch
.local/share/pdm .local/share/jupyter/kernels .pyenv .rye .pixi .conda/envs miniconda3 anaconda3
miniforge3 mambaforge micromamba .virtualenvs .nvm .fnm .volta .n .nodenv .npm-global
.npm-packages .deno/bin .bun/bin .bun/install/global .yarn/bin .config/yarn/global .rbenv .rvm
.gem/ruby .rubies .cargo/bin .cargo/env .rustup .goenv .go go/bin .sdkman .jenv .jabba .dotnet
.ghcup .stack .cabal/bin .opam .julia .juliaup .asdf .mix .kerl .linuxbrew .nix-profile
.local/state/nix/profiles .swiftpm .swiftly .android/sdk Android/Sdk .foundry/bin .composer/vendor
.config/composer/vendor .pub-cache/bin flutter .krew/bin .luarocks perl5 .R R .tool-versions
.python-version .node-version .nvmrc .gitconfig .config/git/config .config/git/ignore
.config/git/attributes .gitignore .gitignore_global .gitattributes .editorconfig .hgrc
""")
# Downloaded packages.
_PACKAGES = words("""
.cargo/registry .cargo/git go/pkg .m2/repository .nuget/packages .cabal/packages .conda/pkgs
.pub-cache/hosted .hex .opam/download-cache .terraform.d/plugin-cache
""")
_ALWAYS_CACHES = (".cache", ".npm")
_CACHES = words("""
.yarn .gradle .ivy2 .sbt .pnpm-store .local/share/pnpm/store .bun/install/cache .composer/cache
.bundle/cache
""")
# Parts of `~/.cache` that are slow to download and only read: browsers, models, tools.
_SHARED_CACHES = words("""
ms-playwright puppeteer Cypress selenium electron node-gyp prisma huggingface/hub
huggingface/datasets torch whisper bazelisk pre-commit
""")
_SHARED = ".cache.shared"  # their mount point; the private cache has links to it
# Variables that name folders of toolchains and of packages.
_TOOLCHAIN_VARIABLES = words("""
VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR NVM_BIN FNM_DIR FNM_MULTISHELL_PATH VOLTA_HOME
RUSTUP_HOME GOROOT GOMODCACHE JAVA_HOME SDKMAN_DIR ASDF_DATA_DIR ASDF_DIR MISE_DATA_DIR RBENV_ROOT
DENO_INSTALL DOTNET_ROOT GEM_HOME ANDROID_HOME ANDROID_SDK_ROOT FLUTTER_ROOT NIX_PROFILES
""")
# Shared system folders, and homes that are not a user's.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/srv", "/var", "/home")


def hides(home: str) -> bool:
    """Return True if a home belongs to a user and so is hidden; False for a system folder."""
    return not any(f"{folder}/".startswith(f"{home}/") for folder in _SYSTEM) and not any(
        home.startswith(f"{folder}/") for folder in ("/usr", "/bin", "/sbin", "/lib", "/etc")
    )


def readable_paths(home: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the paths in a home that commands may read, each with its link target."""
    named = (f"{home}/{name}" for name in likely_names(home, (*_TOOLCHAINS, *_PACKAGES)))
    for path in (*named, *named_toolchains(home, environ)):
        yield from ((path, real) for real in existing([path]))
    for name in likely_names(f"{home}/.cache", _SHARED_CACHES):
        shared = existing([f"{home}/.cache/{name}"])
        yield from ((f"{home}/{_SHARED}/{name}", real) for real in shared)


def own_caches(home: str) -> Iterator[tuple[str, str]]:
    """Yield the paths in a home where commands get private caches, with a name for each cache."""
    likely = likely_names(home, _CACHES)
    there = [name for name in likely if os.path.exists(f"{home}/{name}")]  # noqa: PTH110
    for name in likely_names(home, _PACKAGES):
        above = name.partition("/")[0]
        if os.path.exists(f"{home}/{above}") and not os.path.exists(f"{home}/{name}"):  # noqa: PTH110
            there.append(name)
    yield from ((f"{home}/{name}", name.replace("/", "-")) for name in (*_ALWAYS_CACHES, *there))


def link_shared_caches(home: str, caches: Path) -> None:
    """Create links from the commands' private cache to the shared caches of a home."""
    for name in dict.fromkeys(name.partition("/")[0] for name in _SHARED_CACHES):
        if os.path.exists(f"{home}/.cache/{name}"):  # noqa: PTH110
            with suppress(OSError):  # a command may have created another file there
                (caches / name).symlink_to(f"{home}/{_SHARED}/{name}")


def named_toolchains(folder: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the toolchains in a folder that the PATH and other variables name, and this program's
    own Python folders.
    """
    named = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
    named += [environ.get(name, "") for name in _TOOLCHAIN_VARIABLES]
    named += environ.get("PATH", "").split(":")
    if cargo := environ.get("CARGO_HOME"):
        named += [f"{cargo}/{name}" for name in ("bin", "registry", "git")]
    for path in existing(path for path in dict.fromkeys(named) if path.startswith("/")):
        if path.startswith(f"{folder}/"):
            yield path


def plain_files(home: str) -> Iterator[str]:
    """Yield the non-hidden files at the top of a home that is the project."""
    with suppress(OSError), os.scandir(home) as entries:
        yield from (e.path for e in entries if e.is_file() and not e.name.startswith("."))
