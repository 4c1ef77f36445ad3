"""What can go wrong when Headrace is run on one machine; every message is one sentence that ends in the cure.

DeployError
├── JarsUnavailable     the jars can't be had: no network, no disk, a wrong checksum
├── PortInUse           somebody else listens on a port that the stack needs
├── ProcessFailed       a process ended or didn't become healthy; its last log lines follow the sentence
└── StackBusy           another `headrace up` uses this folder
"""

from __future__ import annotations


class DeployError(Exception):
    """Base of everything below; the command line prints it without a traceback and exits 1."""


class JarsUnavailable(DeployError):
    """The jars of the lock couldn't be fetched or don't have the locked checksum."""


class PortInUse(DeployError):
    """A port that a component was told to use is taken."""


class ProcessFailed(DeployError):
    """A component ended, or didn't become healthy in time."""


class StackBusy(DeployError):
    """The folder belongs to a stack that is running."""
