"""`python -m tests.spark.runtime.lease_holder PREFIX SECONDS`: hold a lease and check it again and again, until it is lost."""

from __future__ import annotations

import sys
import time

from contracts.settings import Settings, read_settings
from spark.runtime.errors import TakenOver
from spark.runtime.lease import Lease


def main() -> int:
    prefix, seconds = sys.argv[1:]
    lease = Lease(read_settings(Settings).s3, prefix, float(seconds), holder="sleeper")
    lease.acquire()
    print("holding", flush=True)
    try:
        while True:
            lease.check()
            time.sleep(0.01)
    except TakenOver as error:
        print(error, flush=True)
        return 3


if __name__ == "__main__":
    sys.exit(main())
