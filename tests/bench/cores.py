"""`headrace bench cores`: raw → enriched while `live` and the broker have so many processors, and the load has the others.

In real-time mode, on a stack of its own, and with nothing else beside them: no alerting, and nobody who polls. The delay is the time from the
broker's append of a raw record to that of its enriched one, by the broker's clock (whole ms), and is read when a load is over. Whether
a delay comes from the code or from too few processors is told by two runs with different numbers of them. The first 20 s are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

import psutil
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from contracts.servers.provision import set_config
from contracts.settings import Settings
from deploy.errors import ProcessFailed
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from spark.runtime.mode import Mode
from tests.bench.load import pace
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, RAW
from tests.bench.measuring.delays import Delays
from tests.bench.measuring.latency import FIRST, Latency, report_one, wait_for_first
from tests.bench.measuring.listen import listen
from tests.bench.measuring.meter import SELDOM_SECONDS, Meter
from tests.bench.measuring.results import as_line, conditions, save
from tests.bench.measuring.trees import program

RATES = (1_000, 2_500, 5_000, 10_000)

_LOOK_SECONDS = 0.2
_SILENT_SECONDS, _REPEATS_SECONDS = 20.0, 2.0
_BATCH = 10_000


def run(cores: int, rates: Sequence[int], seconds: float, say: Callable[[str], None]) -> list[Latency]:
    """One load after the other, on one stack; with all of the machine's processors, the load shares them. Raises ProcessFailed."""
    all_of_them = sorted(os.sched_getaffinity(0))
    own, others = all_of_them[:cores], all_of_them[cores:] or all_of_them
    with filled_stack(FIRST, say) as (stack, env, settings):
        # As the broker appends them, not as a producer says.
        appended = {"message.timestamp.type": "LogAppendTime"}
        set_config(AdminClient({**settings.kafka.client_config()}), {RAW: appended, ENRICHED: appended})
        ours = env | {"HEADRACE_LIVE__MODE": Mode.REAL_TIME, "HEADRACE_LIVE__INTERVAL_SECONDS": "3600"}
        command, of_tree = program(ROOT, deployables().named("live").command)
        live = Process("live", command, directory=stack.directory, env=ours | of_tree)
        live.start()
        try:
            with closing(listen(settings, ENRICHED)) as consumer:
                wait_for_first(consumer, live)
            pids = {"live": live.pid, "kafka": stack.kafka.process.pid}
            for pid in pids.values():
                _pin(psutil.Process(pid), own)
            # The load inherits it.
            os.sched_setaffinity(0, others)
            found = []
            for rate in rates:
                say(
                    f"{rate:,} events/s for {seconds:.0f} s; live and the broker on processors {own}, the load on {others}"
                )
                found.append(_measure(f"cores-{cores}", rate, seconds, live, pids, settings, env))
            return found
        finally:
            os.sched_setaffinity(0, all_of_them)
            live.stop(grace_seconds=60)


def _measure(
    name: str,
    rate: int,
    seconds: float,
    live: Process,
    pids: Mapping[str, int | None],
    settings: Settings,
    env: Mapping[str, str],
) -> Latency:
    sent = int(rate * seconds)
    with (
        closing(listen(settings, RAW, only_new=True)) as raw,
        closing(listen(settings, ENRICHED, only_new=True)) as enriched,
    ):
        for each in (raw, enriched):
            each.pause(each.assignment())
        with (
            Meter(pids, every_seconds=SELDOM_SECONDS) as meter,
            pace.start(RAW, rate, seconds, env) as load,
        ):
            while load.poll() is None:
                time.sleep(_LOOK_SECONDS)
        # Not the raw ones first: live may still read them.
        delays = _read(enriched, sent, live)
        appended = {number: at + delay for number, at, delay in _read(raw, sent, live).samples}
        return Latency(
            name, rate, seconds, None, False, sent, meter.usage, meter.machine, delays.since(appended), alerts=Delays()
        )


def _read(consumer: Consumer, count: int, live: Process) -> Delays:
    """So many records, each with the moment of its append, and all that come with them or soon after."""
    found = Delays()
    consumer.resume(consumer.assignment())
    heard_at = time.monotonic()
    while time.monotonic() < heard_at + (_REPEATS_SECONDS if len(found.samples) >= count else _SILENT_SECONDS):
        live.check_running()
        for message in consumer.consume(_BATCH, 0.5):
            if message.error() is None:
                found.add(message, message.timestamp()[1] * 1_000_000)
                heard_at = time.monotonic()
    if len(found.samples) < count:
        raise ProcessFailed(f"{count - len(found.samples):,} of {count:,} records did not come; see {live.log}")
    return found


def _pin(root: psutil.Process, cores: Sequence[int]) -> None:
    """All threads of a process and of its children to these processors; those that begin later inherit it."""
    # Until none has begun meanwhile.
    while sum(_moves(thread, cores) for thread in _threads(root)):
        pass


def _threads(root: psutil.Process) -> list[int]:
    found: list[int] = []
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += [thread.id for thread in process.threads()]
    return found


def _moves(thread: int, cores: Sequence[int]) -> bool:
    """Pin a thread; whether it was not yet."""
    try:
        was_free = os.sched_getaffinity(thread) != {*cores}
        os.sched_setaffinity(thread, cores)
    except ProcessLookupError:
        return False
    return was_free


def report(latencies: Sequence[Latency], say: Callable[[str], None]) -> None:
    """Print the figures, and write them and every sample to files."""
    found = conditions("pyspark", "confluent-kafka")
    say(as_line(found))
    save("cores", {"conditions": found, "results": [report_one(each, say) for each in latencies]}, say)
