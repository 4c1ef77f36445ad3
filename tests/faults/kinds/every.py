"""All faults, in the order in which a campaign runs them."""

from __future__ import annotations

from tests.faults.fault import Fault
from tests.faults.kinds import alerts, checkpoints, disks, kills, producers, records, servers, state

FAULTS: tuple[Fault, ...] = (
    kills.live_killed,
    kills.live_killed_in_a_transaction,
    kills.live_killed_between_its_commits,
    kills.lake_killed_before_its_commit,
    kills.lake_killed_after_its_commit,
    kills.live_killed_at_an_intervals_end,
    kills.live_killed_in_a_changeover,
    kills.live_workers_killed,
    kills.live_killed_in_a_long_batch,
    kills.live_input_ends_early,
    kills.live_tasks_retried,
    kills.cores_taken,
    kills.second_live,
    kills.second_lake,
    kills.live_frozen,
    kills.live_cut_from_s3,
    kills.lake_frozen,
    checkpoints.live_checkpoint_commit_deleted,
    checkpoints.live_checkpoint_wiped,
    checkpoints.live_checkpoint_truncated,
    checkpoints.live_checkpoint_old,
    checkpoints.live_checkpoint_wiped_running,
    checkpoints.lake_checkpoints_wiped,
    checkpoints.lake_checkpoints_truncated,
    state.state_killed_between_partitions,
    state.state_killed_before_its_commit,
    state.state_workers_killed,
    state.state_input_ends_early,
    state.state_commit_deleted,
    state.state_lost,
    state.state_plan_replaced,
    servers.broker_killed,
    servers.broker_paused,
    servers.broker_paused_for_long,
    servers.registry_down,
    servers.registry_slow,
    servers.s3_refusing,
    servers.s3_slow,
    servers.s3_cut,
    servers.s3_killed,
    records.poison_records,
    records.unknown_schema_id,
    producers.producer_killed,
    producers.load_spike,
    alerts.alerting_killed,
    alerts.alerting_scaled,
    alerts.webhook_down,
    disks.broker_disk_full,
    disks.spark_disk_full,
    kills.everything_killed,
)

SHORT: tuple[Fault, ...] = (kills.live_killed_between_its_commits, records.poison_records)
"""Those of the short selection: a few minutes."""

SHORT_REAL_TIME: tuple[Fault, ...] = (kills.live_killed_at_an_intervals_end,)
"""The same in real-time mode."""
