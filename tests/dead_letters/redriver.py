"""`python -m tests.dead_letters.redriver TOPIC`: a redrive in a process of its own, to be killed."""

from __future__ import annotations

import sys

from contracts.servers.registry import Registry
from contracts.settings import Settings
from tests.dead_letters.place import Place

if __name__ == "__main__":
    settings = Settings()
    with Registry(settings.registry) as registry:
        print(Place(settings, registry, sys.argv[1]).redrive())
