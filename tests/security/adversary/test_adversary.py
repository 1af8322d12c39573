"""Commands that run without asking have no forbidden effects: a sample of the written and the
generated commands. `make soak` runs all written ones and 10,000 generated ones.
"""

import json
import subprocess

import pytest

from .grammar import commands
from .private_root import absent, in_private_root
from .run import MODULE, attack

needs_private_root = pytest.mark.skipif(bool(absent()), reason=absent())

# The effects that the observer must see, as `kind:path`; none for a read-only command.
SEEN = {
    "cat f": "",
    "git status": "",
    "git log -p -- src": "",
    "find . -name '*.md' | xargs cat": "",
    "touch made": "changed:project/made",
    "rm f": "changed:project/f",
    "chmod 600 f": "changed:project/f",
    "echo x > ../outside/made": "changed:outside/made",
    "(sleep 0.2; touch made) > /dev/null 2>&1 &": "changed:project/made",
    "git config x.y z": "changed:project/.git/config settings:[x]",
    "git add f && git rm -q --cached README.md": "changed:project/.git/index",
    "./evil.sh": "ran:sh:evil",
    "PATH=bin:$PATH ls": "ran:planted:bin/ls",
    "python3 evil.py": "ran:py:evil",
    "pytest --help": "ran:py:conftest",
    "cargo --version": "ran:obeyed:cargo",
    "make": "ran:make:all",
    "cp f scripts/fmt.py": "changed:project/scripts/fmt.py",
    "cat ../secret": "read:secret shown:TOPSECRET-outside",
    "wc -l SCENE/outside/secret": "read:outside/secret",
    "ls ..": "read:.",
    "cat ~/.netrc | tr -d T": "read:home/.netrc",
    "cat .env": "shown:TOPSECRET-guarded",
    ": 2> /dev/null > /dev/tcp/127.0.0.1/9": "connected:TcpActiveOpens",
    "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'": "connected:",
}


@needs_private_root
@pytest.mark.slow
def test_every_effect_is_seen() -> None:
    command = in_private_root([MODULE, "--observe", json.dumps(list(SEEN))])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for text, line in zip(SEEN, done.stdout.splitlines(), strict=True):
        effects = {f"{kind}:{what}" for kind, found in json.loads(line).items() for what in found}
        expected = SEEN[text].split()
        assert bool(effects) == bool(expected), (text, effects)
        for each in expected:
            assert any(effect.startswith(each) for effect in effects), (text, effects)


def test_the_same_seed_makes_the_same_commands() -> None:
    first, again, other = commands(1), commands(1), commands(2)
    made = [next(first) for _ in range(200)]
    assert made == [next(again) for _ in range(200)]
    assert made != [next(other) for _ in range(200)]


@needs_private_root
@pytest.mark.slow
def test_unasked_commands_have_no_forbidden_effects() -> None:
    holes, counts = attack(["--commands=200", "--every=30"], workers=1)
    assert not holes, "\n".join(map(str, holes))
    assert counts["allowed"] > 60
