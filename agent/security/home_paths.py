"""What commands in the sandbox find of a home: the places of toolchains, which they may read. All
else is a home of their own, where they have caches instead of the person's.

A cache of the person's that a command could write to would be a way out: shells, package managers
and hooks of git run what lies there. Packages that were fetched before can be read, so that a build
works without the network.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from .sandbox_paths import existing, words

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
# Packages that were fetched before.
_PACKAGES = words("""
.cargo/registry .cargo/git go/pkg .m2/repository .nuget/packages .cabal/packages .conda/pkgs
.pub-cache/hosted .hex .opam/download-cache .terraform.d/plugin-cache
""")
# Of the caches, what takes long to fetch and is only read: browsers, models, tools.
_READ_OF_CACHES = words("""
.cache/ms-playwright .cache/puppeteer .cache/Cypress .cache/selenium .cache/electron .cache/node-gyp
.cache/prisma .cache/huggingface .cache/torch .cache/whisper .cache/bazelisk .cache/pre-commit
""")
# Variables that name folders of toolchains and of packages.
_TOOLCHAIN_VARIABLES = words("""
VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR NVM_BIN FNM_DIR FNM_MULTISHELL_PATH VOLTA_HOME
RUSTUP_HOME GOROOT GOMODCACHE JAVA_HOME SDKMAN_DIR ASDF_DATA_DIR ASDF_DIR MISE_DATA_DIR RBENV_ROOT
DENO_INSTALL DOTNET_ROOT GEM_HOME ANDROID_HOME ANDROID_SDK_ROOT FLUTTER_ROOT NIX_PROFILES
""")
# These hold more than one kind of thing, and homes that are none.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/srv", "/var", "/home")


def hides(home: str) -> bool:
    """Tell whether a home is a person's, to be hidden, and not the system's own folder."""
    return not any(f"{folder}/".startswith(f"{home}/") for folder in _SYSTEM) and not any(
        home.startswith(f"{folder}/") for folder in ("/usr", "/bin", "/sbin", "/lib", "/etc")
    )


def readable_paths(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what commands may read of a home, as it is named there; it may be a link."""
    names = (*_TOOLCHAINS, *_PACKAGES, *_READ_OF_CACHES)
    yield from (path for name in names if os.path.exists(path := f"{home}/{name}"))  # noqa: PTH110
    yield from named_toolchains(home, environ)


def named_toolchains(folder: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the toolchains in a folder that the PATH and other variables name, and what this
    program itself runs by."""
    named = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
    named += [environ.get(name, "") for name in _TOOLCHAIN_VARIABLES]
    named += environ.get("PATH", "").split(":")
    if cargo := environ.get("CARGO_HOME"):
        named += [f"{cargo}/{name}" for name in ("bin", "registry", "git")]
    for path in existing(path for path in named if path.startswith("/")):
        if path.startswith(f"{folder}/"):
            yield path


def plain_files(home: str) -> Iterator[str]:
    """Yield the files of a home that is the project, as far as their names begin with no dot."""
    with suppress(OSError), os.scandir(home) as entries:
        yield from (e.path for e in entries if e.is_file() and not e.name.startswith("."))
