"""Texts with secrets, and texts that only look like secrets."""

import base64
import random
import string

KEY = "sk-ant-api03-the-key-of-the-agent-itself-0123456789"
OTHER = "Zq7-another-token-of-the-person-42"
ENVIRON = {"ANTHROPIC_API_KEY": KEY, "DEPLOY_TOKEN": OTHER}


def lot(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Return reproducible random characters with at least one letter and one digit."""
    drawn = random.Random(length)
    return "".join(drawn.choice(letters) for _ in range(length - 2)) + "a7"


PEM = "\n".join(
    ["-----BEGIN OPENSSH PRIVATE KEY-----", *[lot(64)] * 9, "-----END OPENSSH PRIVATE KEY-----"]
)
SECRETS = {  # text: the part that must be redacted, "" for all of it
    "AKIA" + lot(16, string.ascii_uppercase + "234567").upper(): "",
    f"ghp_{lot(36)}": "",
    f"github_pat_{lot(22)}_{lot(59)}": "",
    f"glpat-{lot(20)}": "",
    f"xoxb-123456789012-{lot(24)}": "",
    f"https://hooks.slack.com/services/T{lot(8)}/B{lot(8)}/{lot(24)}": lot(24),
    f"AIza{lot(35)}": "",
    f"GOCSPX-{lot(28)}": "",
    f"sk_live_{lot(24)}": "",
    f"sk-ant-api03-{lot(90)}": "",
    f"sk-proj-{lot(60)}": "",
    f"sk-{lot(48)}": "",
    f"eyJ{lot(33)}.eyJ{lot(60)}.{lot(43)}": "",
    f"npm_{lot(36)}": "",
    f"pypi-AgEIcHlwaS5vcmc{lot(100)}": "",
    f"hf_{lot(34, string.ascii_letters)[:-2]}ab": "",
    f"https://a.blob.core.windows.net/c?sv=2024&sig={lot(43)}%3D&se=1": lot(43),
    f"AccountName=a;AccountKey={lot(86)}==;": lot(86),
    "postgres://app:s3cr3t-pw@db.internal/x": "s3cr3t-pw",
    f"Authorization: Bearer {lot(40)}": lot(40),
    "authorization: Basic " + base64.b64encode(b"user:a passphrase").decode(): "dXNlcjph",
    PEM: "",
    PEM.replace("\n", "\\n"): "",
    "\n".join(f"{n:6}\t{line}" for n, line in enumerate(PEM.split("\n"), 7)): lot(64),
    PEM[: len(PEM) // 2]: lot(64),
    PEM[len(PEM) // 2 :]: lot(64),
    PEM.replace("\n", "\\n")[: len(PEM) // 2]: lot(64),
    "DB_PASSWORD=hunter22": "hunter22",
    "export SECRET_KEY='a-long-secret!'": "a-long-secret!",
    f"  12:API_TOKEN={lot(20)}": lot(20),
    f'{{"api_key": "{lot(30)}"}}': lot(30),
    f"aws_secret_access_key = {lot(40)}": lot(40),
    f"curl --token={lot(30)} x": lot(30),
    f'client_secret: "{lot(24)}"': lot(24),
}
HARMLESS = (
    "password = get_password()",
    "token: str | None = None",
    "API_KEY=$OTHER",
    "PASSWORD=${DB_PASSWORD}",
    "PASSWORD=changeme",
    "SECRET_KEY=<your key>",
    "ANTHROPIC_API_KEY=sk-ant-...",
    "max_tokens = 32000, TOKEN_LIMIT=100000",
    "contextTokens = lastAssistantMessage",
    "ENV_SESSION_TOKEN = 'KIMI_WEB_SESSION_TOKEN'",
    "cache_key=user_settings_for_tenant_abc",
    "SECRET_KEY=/run/secrets/key1234",
    "class='sk-fading-circle-animation'",
    "postgres://user:password@host/db, http://localhost:8080/a@b, git@github.com:x/y",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "sha256:" + "a1" * 32,
    "npm_config_registry=http://x npm_package_name",
    "pypi-publish-workflow-with-trusted-publishing-for-everyone",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "Bearer authentication-is-required-here",
    "monkey=banana tokenizer.json passing: 12 keyboard",
    'if "-----BEGIN PRIVATE KEY-----" in text and text.endswith("-----END PRIVATE KEY-----"):',
    'KEY = "-----BEGIN PRIVATE KEY-----"\nfollowing = 1\n',
)
