"""Cloud credentials are found without the clouds' libraries; missing ones are named with a next
step.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.agent.errors import NoCredentials
from ctxagent.agent.models.messages import cloud_keys
from ctxagent.agent.models.messages.credentials import find_key
from ctxagent.agent.models.providers import endpoint_of

AWS = {"AWS_REGION": "us-east-1"}
GOOGLE = {"CLOUD_ML_REGION": "global", "ANTHROPIC_VERTEX_PROJECT_ID": "project-1"}


@pytest.fixture(autouse=True)
def firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The firmware data of a machine outside of clouds, until a test writes there."""
    folder = tmp_path / "firmware"
    folder.mkdir()
    monkeypatch.setattr(cloud_keys, "_FIRMWARE", folder)
    return folder


def found(id: str, **environ: str) -> str:
    return find_key(endpoint_of(id, None, environ), environ)


def missing(id: str, **environ: str) -> tuple[str, str]:
    with pytest.raises(NoCredentials) as caught:
        found(id, **environ)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_credentials_of_aws_in_the_environment(name: str) -> None:
    assert found("bedrock/m", **AWS, **{name: "x"}) == name
    assert found("bedrock/m", AWS_DEFAULT_REGION="eu-west-1", **{name: "x"}) == name


@pytest.mark.parametrize(
    ("file", "line"), [("credentials", "aws_access_key_id = a"), ("config", "sso_session=s")]
)
def test_credentials_of_aws_in_a_file(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / ".aws" / file
    path.parent.mkdir()
    path.write_text("[default]\nregion = us-east-1\n")
    assert "no AWS credentials" in missing("bedrock/m", **AWS, HOME=str(tmp_path))[0]
    path.write_text(f"[default]\n{line}\n")
    assert found("bedrock/m", **AWS, HOME=str(tmp_path)) == str(path)
    elsewhere = {"credentials": "AWS_SHARED_CREDENTIALS_FILE", "config": "AWS_CONFIG_FILE"}
    assert found("bedrock/m", **AWS, **{elsewhere[file]: str(path)}) == str(path)


def test_credentials_of_google(tmp_path: Path) -> None:
    for name in ("GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
        assert found("vertex/m", **GOOGLE, **{name: "x"}) == name
    path = tmp_path / ".config" / "gcloud" / "application_default_credentials.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert found("vertex/m", **GOOGLE, HOME=str(tmp_path)) == str(path)
    assert found("vertex/m", **GOOGLE, CLOUDSDK_CONFIG=str(path.parent)) == str(path)


def test_a_machine_of_a_cloud_has_credentials_itself(firmware: Path) -> None:
    (firmware / "sys_vendor").write_text("Amazon EC2\n")
    assert found("bedrock/m", **AWS) == "the role of this EC2 instance"
    assert missing("bedrock/m", **AWS, AWS_EC2_METADATA_DISABLED="true")
    (firmware / "product_name").write_text("Google Compute Engine\n")
    assert found("vertex/m", **GOOGLE) == "the service account of this machine"


def test_all_that_is_missing_is_named_with_a_step_for_each() -> None:
    assert missing("bedrock/m") == (
        "Not ready for bedrock: AWS_REGION is not set, no AWS credentials.",
        "export AWS_REGION=us-east-1\n"
        "export AWS_BEARER_TOKEN_BEDROCK=…, or `aws configure`, AWS_PROFILE=…",
    )
    assert missing("vertex/m", CLOUD_ML_REGION="us-east5") == (
        "Not ready for vertex: ANTHROPIC_VERTEX_PROJECT_ID is not set, no Google credentials.",
        "export ANTHROPIC_VERTEX_PROJECT_ID=…\n"
        "export GOOGLE_OAUTH_ACCESS_TOKEN=…, or `gcloud auth application-default login`",
    )


@pytest.mark.parametrize("raises", [False, True])
def test_a_missing_package_is_named_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    def find_spec(name: str) -> None:
        if raises:
            raise ModuleNotFoundError(name)

    monkeypatch.setattr(cloud_keys, "find_spec", find_spec)
    assert missing("bedrock/m", **AWS, AWS_PROFILE="work") == (
        "Not ready for bedrock: the package boto3 is not installed.",
        "pip install 'ctxagent[bedrock]'",
    )
    file = {"GOOGLE_APPLICATION_CREDENTIALS": "/there.json"}
    assert "ctxagent[vertex]" in missing("vertex/m", **GOOGLE, **file)[1]
    assert found("bedrock/m", **AWS, AWS_BEARER_TOKEN_BEDROCK="k") == "AWS_BEARER_TOKEN_BEDROCK"


def test_a_key_that_is_invalid_in_a_header_is_reported() -> None:
    with pytest.raises(NoCredentials, match="AWS_BEARER_TOKEN_BEDROCK begins or ends"):
        found("bedrock/m", **AWS, AWS_BEARER_TOKEN_BEDROCK="k\n")


def test_a_gateway_on_this_machine_needs_nothing() -> None:
    at = {"ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "http://127.0.0.1:9"}
    assert found("bedrock/m", **AWS, **at) == ""


@pytest.mark.slow
def test_nothing_of_the_clouds_is_imported_to_look() -> None:
    script = """
import sys
from ctxagent.agent.models.messages.credentials import find_key
from ctxagent.agent.models.providers import endpoint_of
environ = {"AWS_REGION": "r", "AWS_PROFILE": "p", "CLOUD_ML_REGION": "r",
           "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_APPLICATION_CREDENTIALS": "f"}
for id in ("bedrock/m", "vertex/m"):
    assert find_key(endpoint_of(id, None, environ), environ)
heavy = {"boto3", "botocore", "google.auth", "anthropic", "httpx2"} & {*sys.modules}
assert not heavy, heavy
"""
    assert importlib.util.find_spec("boto3")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
