"""`Receiver`: who is notified, and where a notification may go."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, ValidationError, model_validator

from contracts.definitions.contract_file import NotYaml, bytes_of, load_yaml, wrong_parts


class ReceiversError(Exception):
    """A receivers file that can't be used; never shows a URL or a credential."""


class _Part(BaseModel):
    # Inputs in an error's text would put a URL's token into a log.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Receiver(_Part):
    """One webhook. `url` and `authorization` (the header's whole value) are secrets; `timeout_seconds` is how long an attempt may take.

    A notification is a POST of JSON; see `webhook_body`.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=60)]
    kind: Literal["webhook"] = "webhook"
    url: SecretStr
    authorization: SecretStr | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=60)


class Receivers(_Part):
    """The receivers file: who is notified, and the hosts that notifications may go to.

    A host that is not this machine must stand in `allowed_hosts`, and is spoken to by HTTPS; one in `plain_http_hosts`
    may be spoken to by HTTP.
    """

    allowed_hosts: tuple[str, ...] = ()
    plain_http_hosts: tuple[str, ...] = ()
    receivers: tuple[Receiver, ...] = ()

    @model_validator(mode="after")
    def _allowed(self) -> Self:
        names = [receiver.name for receiver in self.receivers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"receiver {name}: the name stands twice")
        for receiver in self.receivers:
            if problem := self._problem(receiver):
                raise ValueError(f"receiver {receiver.name}: {problem}")
        return self

    def _problem(self, receiver: Receiver) -> str | None:
        try:
            url = httpx.URL(receiver.url.get_secret_value())
        except httpx.InvalidURL:
            return "url is none"
        if url.scheme not in ("http", "https") or not url.host:
            return "url must begin with https:// and name a host"
        if url.userinfo:
            return "url must not hold a user or password: use authorization"
        if _is_loopback(url.host):
            return None
        if url.host not in {*self.allowed_hosts, *self.plain_http_hosts}:
            return f"host {url.host} is not among allowed_hosts"
        if url.scheme == "http" and url.host not in self.plain_http_hosts:
            return f"host {url.host} must be spoken to by https, or stand in plain_http_hosts"
        return None


def load_receivers(path: Path | None) -> tuple[Receiver, ...]:
    """The receivers of a file; none without a file. Raises ReceiversError, naming each problem."""
    if path is None:
        return ()
    try:
        return Receivers.model_validate(load_yaml(bytes_of(path))).receivers
    except OSError as error:
        raise ReceiversError(f"{path}: not readable: {type(error).__name__}") from None
    except NotYaml as error:
        raise ReceiversError(f"{path}:{error.line}: {error}") from None
    except ValidationError as error:
        raise ReceiversError("\n".join(f"{path}: {each}" for each in wrong_parts(error))) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
