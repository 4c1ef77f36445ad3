"""What keeps the service from publishing a file or what a topic holds, or setting a file aside."""

from __future__ import annotations

from contracts.errors import HeadraceError


class Overtaken(HeadraceError):
    """The file that was read is not the newest any more, or somebody else has published; the next look takes what is there then."""


class AnotherContract(Overtaken):
    """Another process publishes the dimension by another contract, or reads its topic by another schema."""


class TopicMadeAnew(HeadraceError):
    """The topic is not the one that the version in force was made of: it was deleted and made anew, or ends before what was read of it."""
