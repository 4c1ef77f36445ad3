"""Addresses and credentials, read from the environment once by each deployable's `__main__`.

Every deployable's own settings inherit `Settings`; a variable is `HEADRACE_`, the field, and `__` before a nested
field: `HEADRACE_KAFKA__BOOTSTRAP_SERVERS`, `HEADRACE_S3__SECRET_KEY`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(_Part):
    """How to reach the Kafka brokers; names follow Kafka's own client properties."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", description="the brokers")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="how to reach them"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        default=None, description="with a SASL protocol"
    )
    sasl_username: str | None = Field(default=None, description="with a SASL protocol")
    sasl_password: SecretStr | None = Field(default=None, description="with a SASL protocol")
    ssl_ca_file: Path | None = Field(default=None, description="the certificate authority of an SSL protocol")

    def client_config(self) -> dict[str, str]:
        """These settings as librdkafka properties, secrets in clear: hand them to a client, never to a log."""
        config = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.security_protocol}
        if self.sasl_mechanism is not None:
            config["sasl.mechanism"] = self.sasl_mechanism
        if self.sasl_username is not None:
            config["sasl.username"] = self.sasl_username
        if self.sasl_password is not None:
            config["sasl.password"] = self.sasl_password.get_secret_value()
        if self.ssl_ca_file is not None:
            config["ssl.ca.location"] = str(self.ssl_ca_file)
        return config


class RegistrySettings(_Part):
    """A Confluent-compatible schema registry; basic auth (username, password) or a bearer token, not both.

    `lag_seconds`: how far one of its nodes may be behind another. For so long a schema id that it does not know is asked for
    again, before a record is bad because of it.
    """

    url: HttpUrl = Field(
        default=HttpUrl("http://127.0.0.1:8081/apis/ccompat/v7"), description="a Confluent-compatible registry"
    )
    username: str | None = Field(default=None, description="basic auth")
    password: SecretStr | None = Field(default=None, description="basic auth")
    token: SecretStr | None = Field(default=None, description="a bearer token, in place of basic auth")
    ca_file: Path | None = Field(default=None, description="its certificate authority")
    lag_seconds: float = Field(default=3.0, ge=0, description="how far one of its nodes may lag behind another")


class S3Settings(_Part):
    """An S3-compatible object store and the one bucket that Headrace uses in it.

    `endpoint` None is AWS itself; keys None is the SDK's own chain (environment, instance role).
    """

    endpoint: HttpUrl | None = Field(default=None, description="the object store; none is AWS itself")
    region: str = Field(default="us-east-1", description="its region")
    access_key: SecretStr | None = Field(default=None, description="none is the SDK's own chain")
    secret_key: SecretStr | None = Field(default=None, description="none is the SDK's own chain")
    bucket: str = Field(default="headrace", description="the one bucket that is used")

    def delta_options(self) -> dict[str, str]:
        """These settings as deltalake wants them, secrets in clear.

        Commits are conditional puts, so two writers can't both make a version.
        """
        options = {"AWS_REGION": self.region, "aws_conditional_put": "etag"}
        if self.endpoint is not None:
            options["AWS_ENDPOINT_URL"] = str(self.endpoint)
            options["AWS_ALLOW_HTTP"] = str(self.endpoint.scheme == "http").lower()
            options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false"
        if self.access_key is not None and self.secret_key is not None:
            options["AWS_ACCESS_KEY_ID"] = self.access_key.get_secret_value()
            options["AWS_SECRET_ACCESS_KEY"] = self.secret_key.get_secret_value()
        return options


class HttpSettings(_Part):
    """Where a deployable serves `/health` and `/metrics`; port 0 takes a free one."""

    host: str = Field(default="127.0.0.1", description="where `/health` and `/metrics` are served")
    port: int = Field(default=0, ge=0, le=65535, description="0 is a free one")


class Settings(BaseSettings):
    """What every deployable needs to know. Unknown `HEADRACE_` variables are ignored: they are other deployables'."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", env_nested_delimiter="__", frozen=True, extra="ignore")

    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    s3: S3Settings = S3Settings()
    http: HttpSettings = HttpSettings()
    log_format: Literal["json", "console"] = Field(default="json", description="of the log on stderr")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="what is logged at least"
    )


S = TypeVar("S", bound=Settings)


def read_settings(kind: type[S], **overrides: Any) -> S:
    """Read a deployable's settings from the environment; `overrides` win.

    A wrong one is a sentence on stderr, without the value, which may be a secret, and the end of the process with
    status 2.
    """
    try:
        return kind(**overrides)
    except ValidationError as error:
        for problem in error.errors(include_input=False, include_url=False):
            variable = "HEADRACE_" + "__".join(str(part) for part in problem["loc"]).upper()
            print(f"wrong setting {variable}: {problem['msg']}", file=sys.stderr)
    except SettingsError as error:
        print(f"wrong setting: {error}", file=sys.stderr)
    except RecursionError:
        print("wrong setting: a HEADRACE_ variable is JSON with too many brackets within each other", file=sys.stderr)
    raise SystemExit(2)
