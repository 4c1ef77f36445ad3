"""What ends a comparison; the command line prints each as one sentence.

DeployError
├── PeerUnavailable     a peer's environment can't be made: no network, no disk, another Python than it runs on
├── PeerDiffers         a contender's rows are not those that they must be, so no figure of it counts
└── UnknownContender    a name that is none
"""

from __future__ import annotations

from deploy.errors import DeployError


class PeerUnavailable(DeployError):
    """The packages of a peer couldn't be installed."""


class PeerDiffers(DeployError):
    """What a contender wrote is not the enrichment of what it read."""


class UnknownContender(DeployError):
    """Nobody of this name takes part."""
