"""What `up` starts beside the stack, by `deploy/deployables.yaml`."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contracts.definitions.contract_file import NotYaml, bytes_of, load_yaml, wrong_parts
from contracts.definitions.topic import Party
from deploy.errors import DeployError
from deploy.local.processes.process import Process

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "deployables.yaml"

Role = Literal["producer", "pipelines", "reader"]
ROLES: tuple[Role, ...] = ("producer", "pipelines", "reader")
"""In the order in which they are stopped."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Deployable(_Part):
    """One `python -m` of ours; the file says what its fields mean."""

    name: Party
    module: str
    arguments: tuple[str, ...] = ()
    role: Role
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    ends: bool = False
    grace_seconds: Annotated[float, Field(gt=0)] = 20
    niceness: Annotated[int, Field(ge=0, le=19)] = 0

    @property
    def command(self) -> tuple[str, ...]:
        """What stands behind `python -m`."""
        return (self.module, *self.arguments)

    def with_arguments(self, *more: str) -> Self:
        """The same with further arguments."""
        return self.model_copy(update={"arguments": (*self.arguments, *more)})

    def process(self, directory: Path, port: int, settings: Mapping[str, str]) -> Process:
        """It as a process with the stack's settings, serving its health on a port."""
        env = {
            **settings,
            "HEADRACE_HTTP__PORT": str(port),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            # glibc otherwise keeps an arena of memory for each of a JVM's many threads.
            "MALLOC_ARENA_MAX": "2",
        }
        return Process(
            self.name, [sys.executable, "-m", *self.command], directory=directory, env=env, niceness=self.niceness
        )


class Deployables(_Part):
    """All, in the order in which they are stopped: senders before receivers."""

    tables: Annotated[str, Field(pattern=r"^\w+(/\w+)*$")]
    clock: Deployable | None = None
    pipelines: tuple[Party, ...] = Field(min_length=1)
    deployables: tuple[Deployable, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [each.name for each in self.deployables]
        ports = [each.port for each in self.deployables if each.port]
        if len(set(names)) < len(names) or len(set(ports)) < len(ports):
            raise ValueError("two deployables have the same name or port")
        if [each.role for each in self.deployables].count("pipelines") != 1:
            raise ValueError("one deployable has the role pipelines")
        return self

    @property
    def tables_folder(self) -> Path:
        """Where the dimensions' source files lie. The package itself is not imported. Raises DeployError if it is not there."""
        package, _, folder = self.tables.partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise DeployError(f"{FILE}: tables: there is no package {package}")
        return Path(spec.origin).parent / folder

    def of(self, role: Role) -> tuple[Deployable, ...]:
        """Those with a role."""
        return tuple(each for each in self.deployables if each.role == role)

    def named(self, name: str) -> Deployable:
        """The one with a name; that of the pipelines with those that run by default."""
        (found,) = (each for each in self.deployables if each.name == name)
        return found.with_arguments(*self.pipelines) if found.role == "pipelines" else found

    def live(self, pipelines: Sequence[str]) -> Deployable:
        """The one that runs pipelines, with these."""
        return self.of("pipelines")[0].with_arguments(*pipelines)


@functools.cache
def deployables() -> Deployables:
    """What the file lists. Raises DeployError, naming the file, if it is not right."""
    try:
        return Deployables.model_validate(load_yaml(bytes_of(FILE)))
    except (NotYaml, OSError) as error:
        raise DeployError(f"{FILE}: {error}") from error
    except ValidationError as error:
        raise DeployError(f"{FILE}: {'; '.join(wrong_parts(error))}") from error
