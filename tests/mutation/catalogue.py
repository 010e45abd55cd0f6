"""Every mutant, and the small set of tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass

_SIMULATION = "tests/simulation/test_simulation.py"
_CRASH = f"{_SIMULATION}::test_a_standby_takes_over_after_a_crash_at_every_step"
_USURP = f"{_SIMULATION}::test_a_leader_that_is_replaced_at_any_step_and_continues_is_harmless"
_FLOWS = "tests/simulation/test_dataflows.py::test_a_dataflow_under_faults_has_the_result_of_one_thread"
_MOVED = "tests/property/coordinator/test_restored_channels_property.py"
_LAST_COMMIT = "tests/unit/coordinator/job/test_last_commit.py"
_ORDERS = "tests/unit/coordinator/job/test_job_master_orders.py"
_SINKS = "tests/unit/taskmanager/spark/sinks/test_sink_contract.py"
_DELTA = "tests/unit/taskmanager/spark/sinks/test_delta_sink.py"
_CUSTOM = "tests/unit/taskmanager/spark/test_custom_connectors.py"
_KAFKA = "tests/unit/taskmanager/spark/sources/test_kafka_source.py"
_KAFKA_SINK = "tests/unit/taskmanager/spark/sinks/test_kafka_sink.py"
_TRACE = "tests/interaction/test_interaction.py::test_a_script_leaves_the_trace_in_its_file"
_ALIGNMENT = "tests/unit/taskmanager/barrier/test_barrier_handler.py"
_CONTRACT = "tests/unit/taskmanager/state/test_state_contract.py"
_DIFFS = "tests/property/taskmanager/state/format/test_diff_histories.py"
_PARTS = "tests/unit/taskmanager/state/parts/test_parts.py"
_WINDOWS = "tests/unit/taskmanager/state/windows/test_window_store.py"
_RECURRENCE = "tests/unit/coordinator/job/test_recurrence.py"
_SPARK_ERRORS = "tests/unit/taskmanager/spark/test_spark_errors.py"
_MACHINE = "tests/unit/taskmanager/task/test_subtask_machine.py"
_AHEAD = "tests/integration/taskmanager_spark/test_spark_ahead.py"
_SPLITS = "tests/unit/taskmanager/spark/test_split_log.py"
_FOLDERS = "tests/unit/taskmanager/spark/sources/test_watched_folders.py"
_SESSIONS = "tests/unit/common/test_session.py"
_GREETING = "tests/integration/taskmanager_runtime/test_greeting.py"
_TOGETHER = "tests/unit/taskmanager/runtime/test_reports_together.py"
_REPORTS = "tests/unit/coordinator/runtime/test_subtask_reports.py"
_STREAMS = "tests/unit/coordinator/runtime/test_task_managers.py"
_PROCESSES = "tests/integration/coordinator/test_coordinator_process.py"
_SEALS = "tests/unit/coordinator/runtime/test_snapshot_seal.py"
_DAMAGED = "tests/unit/taskmanager/state/test_damaged_state.py"
_TAKEN_OVER = "tests/simulation/test_simulated_adoption.py"
_ADOPTION = "tests/unit/coordinator/job/test_adoption.py"
_PART = "tests/unit/coordinator/job/test_part_restart.py"
_POSITIONS = "tests/unit/coordinator/job/test_first_positions.py"
_PARTS_SIMULATED = "tests/simulation/test_simulated_parts.py"
_COMPONENTS = "tests/unit/coordinator/job/test_part_of_components.py"
_COMPONENTS_SIMULATED = "tests/simulation/test_simulated_components.py"
_WITH_EXCHANGE = "tests/unit/coordinator/job/test_part_with_exchange.py"
_EXCHANGING = "tests/simulation/test_simulated_exchanging_parts.py"
_LOST = f"{_EXCHANGING}::test_what_a_lost_task_manager_did_not_run_is_not_deployed_again"
_OUTBOX = "tests/unit/taskmanager/exchange/test_outbox.py"
_BATCHES = "tests/unit/taskmanager/exchange/test_arriving_batches.py"
_LARGE = "tests/unit/taskmanager/state/rows/test_large_states.py"
_DEPLOYMENTS = "tests/unit/taskmanager/runtime/test_deployments.py"


@dataclass(frozen=True)
class Mutant:
    """plugin: the module below tests.mutation that applies it. off: what is switched off, for people.

    raises: names of exceptions by which its tests may end, beside assertions.
    """

    plugin: str
    off: str
    tests: tuple[str, ...]
    raises: tuple[str, ...] = ()


MUTANTS = (
    Mutant(
        "epoch_check",
        "the epoch check in a leader's writes",
        (
            "tests/unit/ha/test_job_records.py::test_a_superseded_leader_can_write_nothing",
            "tests/integration/ha/test_ha_contract.py::test_tokens_rise_and_a_zombies_write_is_refused",
            _USURP,
            f"{_TRACE}[fenced_leader]",
            f"{_PROCESSES}::test_a_submission_that_a_frozen_leader_had_on_its_lips_is_refused",
        ),
    ),
    Mutant(
        "token_fence",
        "the task managers' refusal of older tokens",
        (
            "tests/integration/taskmanager_runtime/test_runtime_faults.py"
            "::test_a_message_with_an_older_token_is_refused_and_the_stream_left",
            "tests/integration/taskmanager_runtime/test_exchange_over_grpc.py::test_an_older_token_is_refused",
        ),
    ),
    Mutant(
        "token_confirmation",
        "asking ZooKeeper about a token that a peer names",
        (
            "tests/unit/ha/test_leader_election.py"
            "::test_a_token_reported_by_a_peer_is_looked_up_and_has_no_effect_alone",
            "tests/unit/ha/test_leader_election.py"
            "::test_while_zookeeper_is_away_a_later_token_ends_the_grant_and_the_next_one_takes_no_account_of_it",
        ),
    ),
    Mutant(
        "exchange_token",
        "that a token on an exchange channel is not taken for a leader's word",
        (
            "tests/integration/taskmanager_runtime/test_exchange_over_grpc.py"
            "::test_a_newer_token_opens_a_channel_and_shuts_no_leader_out",
        ),
    ),
    Mutant(
        "reports_of_strangers",
        "taking reports only from where the subtask is placed",
        (
            ""
            "tests/unit/coordinator/job/test_provenance.py::test_a_failure_that_another_task_manager_reports_ends_nothing",
            "tests/unit/coordinator/job/test_provenance.py"
            "::test_a_checkpoint_is_completed_only_by_the_task_managers_of_its_subtasks",
            "tests/integration/coordinator/test_coordinator_foreign_reports.py"
            "::test_a_subtask_outside_the_attempt_has_no_effect",
        ),
    ),
    Mutant(
        "poison_job",
        "holding a job back during whose recovery leaders died",
        (
            "tests/unit/coordinator/runtime/test_recovery_line.py::test_the_poison_is_held_back_and_nothing_else",
            "tests/unit/coordinator/runtime/test_recovery_line.py::test_a_suspect_waits_for_the_one_before_it",
        ),
    ),
    Mutant(
        "answered_challenge",
        "the grant transaction's condition that a challenge still stands unanswered",
        ("tests/integration/ha/test_ha_contract.py::test_a_leader_that_has_answered_its_challenge_is_not_replaced",),
    ),
    Mutant(
        "former_leader",
        "a client's memory of the highest token",
        (
            "tests/integration/lockgate_client/test_client_follows_leader.py"
            "::test_a_client_never_goes_back_to_a_leader_that_was_replaced",
        ),
    ),
    Mutant(
        "alignment",
        "holding a channel back until every barrier is there",
        (
            f"{_ALIGNMENT}::test_the_channel_that_delivered_is_held_until_the_last_one_has",
            "tests/property/taskmanager/barrier/test_alignment_property.py"
            "::test_a_checkpoint_aligns_exactly_when_every_channel_carries_it",
            f"{_TRACE}[checkpoint]",
            _CRASH,
            f"{_FLOWS}[aligned]",
        ),
    ),
    Mutant(
        "channel_state",
        "keeping what an unaligned barrier has overtaken",
        (
            "tests/unit/taskmanager/runtime/test_in_flight.py"
            "::test_recorded_elements_are_stored_by_channel_and_restored_before_newer_ones",
            f"{_SIMULATION}::test_a_quiet_run_in_every_mode_needs_one_attempt",
            f"{_FLOWS}[unaligned]",
        ),
    ),
    Mutant(
        "file_commit_twice",
        "the file sink's idempotent commit",
        (
            f"{_SINKS}::test_a_commit_that_was_carried_out_and_then_failed_is_tried_again_and_changes_nothing",
            f"{_SINKS}::test_a_commit_that_was_done_before_the_crash_is_not_done_twice",
            f"{_SINKS}::test_another_run_does_not_repeat_the_commits_of_the_first_one",
        ),
    ),
    Mutant(
        "sql_commit_twice",
        "the SQL sink's ledger of commits",
        (
            f"{_SINKS}::test_a_commit_that_was_carried_out_and_then_failed_is_tried_again_and_changes_nothing",
            f"{_SINKS}::test_a_commit_that_was_done_before_the_crash_is_not_done_twice",
            f"{_SINKS}::test_another_run_does_not_repeat_the_commits_of_the_first_one",
            f"{_SINKS}::test_a_zombie_cannot_publish_output_outside_a_completed_snapshot",
        ),
    ),
    Mutant(
        "kafka_commit_twice",
        "the Kafka sink's look into the ledger of commits",
        (
            f"{_SINKS}::test_a_commit_that_was_done_before_the_crash_is_not_done_twice",
            f"{_SINKS}::test_another_run_does_not_repeat_the_commits_of_the_first_one",
            f"{_SINKS}::test_a_zombie_cannot_publish_output_outside_a_completed_snapshot",
        ),
    ),
    Mutant(
        "kafka_open_ledger",
        "the Kafka ledger's disbelief in transactions that are open or were aborted",
        (
            f"{_KAFKA_SINK}::test_open_transactions_of_a_dead_process_are_neither_visible_nor_counted",
            f"{_KAFKA_SINK}::test_a_transaction_that_was_aborted_counts_for_nothing",
        ),
    ),
    Mutant(
        "kafka_own_names",
        "the one name by which a Kafka sink's successor fences it",
        (f"{_KAFKA_SINK}::test_a_producer_that_was_fenced_writes_nothing",),
    ),
    Mutant(
        "delta_commit_twice",
        "the Delta sink's look at the table's application transactions",
        (
            f"{_DELTA}::test_a_zombie_that_was_frozen_inside_its_commit_adds_nothing",
            f"{_DELTA}::test_files_rewritten_by_maintenance_are_not_added_again",
        ),
        raises=("UserError", "Unavailable"),  # it misses a file that maintenance has taken away
    ),
    Mutant(
        "kafka_silent_jump",
        "a Kafka source's refusal to go on behind what retention has removed",
        (f"{_KAFKA}::test_records_removed_by_retention_end_the_job_with_a_message",),
    ),
    Mutant(
        "kafka_open_source",
        "a Kafka source's disbelief in transactions that are open or were aborted",
        (f"{_KAFKA}::test_records_of_open_and_aborted_transactions_are_not_read",),
    ),
    Mutant(
        "ledger_of_own_run",
        "knowing which run has staged what another one restores",
        (f"{_SINKS}::test_another_run_does_not_repeat_the_commits_of_the_first_one",),
    ),
    Mutant(
        "custom_abort_of_younger",
        "a zombie's respect for what its successor has staged",
        (f"{_CUSTOM}::test_a_new_attempt_aborts_only_transactions_of_older_ones",),
    ),
    Mutant(
        "commit_before_persist",
        "waiting for ZooKeeper before sinks may commit",
        (
            "tests/unit/coordinator/job/test_job_master_life.py::test_a_checkpoint_is_persisted_before_it_is_announced",
            _CRASH,
        ),
    ),
    Mutant(
        "end_before_commit",
        "waiting for the sinks at the end of a job that is cancelled or has failed",
        (
            f"{_LAST_COMMIT}::test_a_cancelled_job_stops_when_every_sink_has_committed_the_newest_checkpoint",
            f"{_LAST_COMMIT}::test_a_checkpoint_that_is_being_written_at_the_cancel_is_announced_and_committed",
            f"{_LAST_COMMIT}::test_the_failed_sink_is_not_waited_for_and_the_others_are",
            f"{_SIMULATION}::test_a_cancelled_job_has_committed_its_newest_checkpoint_completely",
        ),
    ),
    Mutant(
        "foreign_savepoint",
        "telling a stop's own savepoint from another one that completes meanwhile",
        (
            f"{_ORDERS}::test_a_users_savepoint_that_is_under_way_does_not_end_a_stop",
            f"{_SIMULATION}::test_a_stop_during_a_users_savepoint_ends_with_its_own_once_that_is_committed",
        ),
    ),
    Mutant(
        "stop_before_commit",
        "waiting for the sinks at the end of a job that is stopped or has read everything",
        (
            f"{_ORDERS}::test_a_stop_is_durable_before_its_savepoint_begins_and_nothing_follows_that",
            f"{_SIMULATION}::test_a_stop_during_a_users_savepoint_ends_with_its_own_once_that_is_committed",
        ),
    ),
    Mutant(
        "savepoint_twice",
        "knowing a savepoint by the request that asked for it",
        (
            "tests/unit/coordinator/checkpoint/test_checkpoint_coordinator.py"
            "::test_a_repeated_savepoint_request_gets_the_same_one_during_and_after_it",
            f"{_SIMULATION}::test_a_repeated_savepoint_request_gets_the_same_one_under_every_leader",
        ),
    ),
    Mutant(
        "ack_before_upload",
        "waiting for the upload before the acknowledgement",
        (f"{_MACHINE}::test_no_ack_before_the_upload_and_none_without_it", f"{_TRACE}[checkpoint]", _CRASH),
    ),
    Mutant(
        "checkpoint_id_reuse",
        "the counter of checkpoint ids that outlives a leader",
        ("tests/unit/ha/test_job_records.py::test_attempts_and_checkpoint_ids_are_replaced", _CRASH),
    ),
    Mutant(
        "pointer_after_blob",
        "deleting the pointer before what it points to",
        (_CRASH,),
    ),
    Mutant(
        "shared_files_uncounted",
        "counting who refers to a shared file",
        (
            ""
            "tests/unit/coordinator/checkpoint/test_shared_files.py::test_a_file_is_deleted_with_the_last_snapshot_that_refers_to_it",
        ),
    ),
    Mutant(
        "increment_on_uncertain",
        "building increments on complete checkpoints only",
        (f"{_CONTRACT}::test_an_aborted_checkpoint_leaves_no_file_and_its_content_is_in_the_next_one",),
        raises=("NothingToTakeOver",),  # the leader knows of no such base
    ),
    Mutant(
        "parts_on_uncertain",
        "building snapshots of parts on complete checkpoints only",
        (f"{_PARTS}::test_changes_of_a_checkpoint_that_never_became_complete_are_in_the_next_one",),
        raises=("StateUnreadable",),  # its files are deleted
    ),
    Mutant(
        "parts_changes_forgotten",
        "keeping changed parts until a checkpoint that has them is complete",
        (
            f"{_PARTS}::test_changes_of_a_checkpoint_that_never_became_complete_are_in_the_next_one",
            "tests/property/taskmanager/state/test_part_histories.py::test_every_kept_checkpoint_restores_its_parts",
        ),
    ),
    Mutant(
        "diff_on_newest",
        "making differences from what the completed checkpoint has",
        (f"{_DIFFS}::test_a_difference_builds_on_the_completed_checkpoint_and_not_on_a_later_one",),
        raises=("StateUnreadable",),  # the restore that notices it
    ),
    Mutant(
        "diff_base_unchecked",
        "comparing a difference's base with the one that it was made from",
        (f"{_DIFFS}::test_differences_on_another_base_are_refused_with_a_sentence",),
    ),
    Mutant(
        "fired_groups_forgotten",
        "what a snapshot in the middle of a firing says of the key groups that have fired",
        (
            "tests/property/taskmanager/state/windows/test_portions.py::test_windows",
            "tests/property/taskmanager/state/windows/test_portions.py::test_failures_do_come_in_the_middle",
        ),
    ),
    Mutant(
        "purged_rows_again",
        "forgetting, in a restore from increments, what event time has purged",
        (f"{_WINDOWS}::test_windows_fired_by_the_end_of_the_input_are_in_no_later_snapshot",),
    ),
    Mutant(
        "processing_time_returns",
        "beginning behind the windows of processing time that a snapshot has seen end",
        (
            "tests/unit/taskmanager/state/windows/test_processing_windows.py"
            "::test_a_rescaled_subtask_does_not_return_to_windows_that_have_ended_elsewhere",
            "tests/unit/taskmanager/spark/keyed/test_contents_by_the_clock.py"
            "::test_a_rescaled_subtask_does_not_return_to_windows_that_have_ended_elsewhere",
            "tests/unit/taskmanager/state/test_processing_clock.py::test_a_restored_time_is_its_start",
        ),
    ),
    Mutant(
        "early_before_end",
        "ending windows by the clock before early results of the same moment",
        (
            "tests/unit/taskmanager/state/windows/test_early_by_the_clock.py"
            "::test_a_window_that_ends_has_no_early_result_at_the_same_time",
        ),
    ),
    Mutant(
        "new_records_forgotten",
        "the number of new records in what windows with a trigger restore",
        (
            "tests/unit/taskmanager/state/windows/test_triggered_windows.py"
            "::test_the_trigger_may_change_but_not_whether_it_purges",
        ),
    ),
    Mutant(
        "counts_restart",
        "the number of records that a key of count windows has had",
        ("tests/property/taskmanager/state/counts/test_count_windows.py::test_windows_hold_the_last_records",),
    ),
    Mutant(
        "restored_timers",
        "the timers in what a process function restores",
        ("tests/property/taskmanager/state/rows/test_row_histories.py::test_timers_move_with_their_keys",),
    ),
    Mutant(
        "elements_outlive_keys",
        "removing the elements of a large map or list with their key, in RocksDB",
        tuple(
            f"{_LARGE}::test_nothing_is_left_of_elements_whose_key_ends[{end}]"
            for end in ("cleared", "expired", "expired and back", "small")
        ),
    ),
    Mutant(
        "elements_not_apart",
        "a row for each element of a large map or list, in RocksDB",
        tuple(
            f"{_LARGE}::test_a_changed_element_of_ten_thousand_stores_that_element[rocksdb-{edit}]"
            for edit in ("entry", "removal", "appended")
        ),
    ),
    Mutant(
        "coarse_isolation",
        "leaving out of a batch no more than the records that fail",
        ("tests/unit/taskmanager/spark/test_isolation.py::test_exactly_the_records_that_fail_are_found_in_order",),
    ),
    Mutant(
        "marks_of_failed_calls",
        "taking back what a process function has done before it failed on a record",
        ("tests/unit/taskmanager/spark/test_careful_process.py::test_a_failed_record_has_no_effect",),
        raises=("TypeError",),  # for what was put out and is of no type that the schema knows
    ),
    Mutant(
        "failed_uncounted",
        "restoring how many records have failed",
        ("tests/integration/taskmanager_spark/test_spark_on_error.py::test_failures_are_counted_once_across_attempts",),
    ),
    Mutant(
        "released_early",
        "processing at most once only what is durable",
        (
            "tests/unit/taskmanager/spark/sources/test_read_ahead.py::test_no_record_is_processed_twice_and_lost_ones_are_counted",
            "tests/unit/taskmanager/spark/sources/test_read_ahead.py::test_nothing_is_processed_before_a_checkpoint_is_complete",
        ),
    ),
    Mutant(
        "savepoint_releases",
        "taking back at a savepoint what may be processed",
        (
            "tests/unit/taskmanager/spark/sources/test_read_ahead.py::test_no_record_is_processed_twice_and_lost_ones_are_counted",
            "tests/unit/taskmanager/spark/sources/test_read_ahead.py::test_a_savepoint_loses_nothing_and_what_waits_goes_on_with_the_next_checkpoint",
        ),
    ),
    Mutant(
        "hasty_join",
        "keeping the rows of an interval join until no partner can come",
        ("tests/unit/taskmanager/state/join/test_interval_join.py::test_a_row_waits_until_no_partner_can_come",),
    ),
    Mutant(
        "back_edge_log",
        "the log of what comes over a loop's back edges",
        (
            ""
            "tests/unit/taskmanager/runtime/test_loop_snapshots.py::test_the_snapshot_of_a_head_holds_the_returning_records",
            f"{_SIMULATION}::test_a_crash_at_every_step_loses_no_circulating_record",
            f"{_FLOWS}[unaligned]",
        ),
    ),
    Mutant(
        "back_edge_replay",
        "putting the log of a loop's back edges back",
        (
            f"{_SIMULATION}::test_a_crash_at_every_step_loses_no_circulating_record",
            f"{_FLOWS}[unaligned]",
        ),
    ),
    Mutant(
        "moved_shares",
        "taking of moved records in flight only those of one's own key groups",
        (
            f"{_MOVED}::test_a_row_by_key_comes_to_its_owner_only_and_behind_older_ones_of_its_channel",
            f"{_SIMULATION}::test_a_pressed_job_is_rescaled_with_its_records_in_flight",
        ),
    ),
    Mutant(
        "moved_first",
        "processing moved records in flight before anything new",
        (
            f"{_MOVED}::test_a_row_by_key_comes_to_its_owner_only_and_behind_older_ones_of_its_channel",
            "tests/unit/taskmanager/runtime/test_in_flight.py"
            "::test_of_moved_records_only_the_own_key_groups_are_taken_before_everything_else",
        ),
    ),
    Mutant("channel_replay", "putting back what barriers have overtaken", (f"{_FLOWS}[unaligned]",)),
    Mutant(
        "lost_key_groups",
        "giving every subtask of a rescaled vertex all of its key groups",
        (
            "tests/property/coordinator/test_redistribute_property.py"
            "::test_every_key_group_finds_its_state_and_no_subtask_loads_foreign_groups",
            f"{_FLOWS}[aligned]",
        ),
    ),
    Mutant(
        "early_back_edge",
        "holding a back edge that is ahead of its head",
        (
            "tests/unit/taskmanager/barrier/test_barriers_of_loops.py"
            "::test_a_back_edge_that_is_ahead_is_held_and_has_no_log",
        ),
    ),
    Mutant(
        "storage_counted",
        "that a storage which fails is not the job's fault",
        (
            "tests/unit/coordinator/checkpoint/test_checkpoint_storage.py"
            "::test_subtasks_that_cannot_store_their_part_never_end_the_attempt",
            "tests/unit/coordinator/checkpoint/test_checkpoint_storage.py"
            "::test_metadata_that_cannot_be_written_never_ends_the_attempt",
        ),
    ),
    Mutant(
        "unsynced_files",
        "the fsync of state, metadata and graphs",
        (
            "tests/unit/durability/test_power_loss.py::test_state_that_is_acknowledged_is_there",
            "tests/unit/durability/test_power_loss.py::test_metadata_and_graphs_that_zookeeper_points_to_are_there",
        ),
        raises=("StateUnreadable", "StorageError"),
    ),
    Mutant(
        "unsynced_staging",
        "the fsync of what a file sink has staged",
        (
            "tests/unit/durability/test_power_loss.py"
            "::test_rows_staged_by_a_file_sink_are_committed_by_the_next_attempt",
        ),
        raises=("UserError", "ArrowInvalid", "FileNotFoundError"),
    ),
    Mutant(
        "greedy_sweep",
        "that an attempt leaves what its successor has staged",
        (
            "tests/unit/durability/test_staged_files_of_others.py"
            "::test_an_attempt_that_starts_late_keeps_its_successors_output",
        ),
    ),
    Mutant(
        "hasty_loop_end",
        "the rounds that have to be quiet before a loop is over",
        (
            "tests/unit/taskmanager/task/test_loop_rounds.py"
            "::test_a_loop_is_over_after_three_quiet_rounds_of_its_only_head",
        ),
    ),
    Mutant(
        "data_error_is_final",
        "the restart after what depends on records",
        (
            "tests/integration/taskmanager_runtime/test_runtime_faults.py"
            "::test_errors_of_records_are_distinguished_from_errors_without_any_record",
        ),
    ),
    Mutant(
        "planned_or_on_records",
        "telling what an expression does to records from a wrong expression",
        (
            f"{_SPARK_ERRORS}::test_a_task_that_fails_on_its_data_is_a_fault_of_the_data",
            f"{_SPARK_ERRORS}::test_transient_errors_of_user_code_are_distinguished",
        ),
    ),
    Mutant(
        "failed_and_forgotten",
        "keeping the newest checkpoint of a job that fails",
        (
            "tests/unit/coordinator/job/test_job_master_faults.py"
            "::test_a_user_error_fails_the_job_at_once_with_its_message",
            f"{_RECURRENCE}::test_the_same_records_that_are_refused_again_and_again_end_the_job",
        ),
    ),
    Mutant(
        "endless_restarts",
        "recognising what fails again and again on the same records",
        (
            f"{_RECURRENCE}::test_the_same_records_that_are_refused_again_and_again_end_the_job",
            f"{_RECURRENCE}::test_ranges_that_overlap_are_the_same_records",
        ),
    ),
    Mutant(
        "unknown_outcome",
        "waiting until it is known whether a write to ZooKeeper was done",
        (
            "tests/unit/coordinator/runtime/test_persistence.py"
            "::test_a_write_of_unknown_outcome_is_never_reported_as_failed",
            f"{_SIMULATION}::test_writes_of_unknown_outcome_are_read_back_after_an_outage_of_any_length",
        ),
    ),
    Mutant(
        "undiscarded_ignored",
        "keeping shared files while a record that may refer to them is there",
        (
            "tests/unit/coordinator/runtime/test_deletions.py"
            "::test_shared_files_stay_while_a_record_that_may_refer_to_them_cannot_be_deleted",
        ),
    ),
    Mutant(
        "deletions_in_line",
        "deleting files apart from what a job waits for",
        (
            ""
            "tests/unit/coordinator/runtime/test_deletions.py::test_files_are_deleted_on_a_separate_worker_after_the_record",
        ),
    ),
    Mutant(
        "older_token_accepted",
        "the leader's deafness to what was said under older tokens",
        (f"{_STREAMS}::test_a_message_to_a_former_leader_is_only_a_sign_of_life",),
    ),
    Mutant(
        "taken_after_term",
        "leaving a submission that becomes durable after the term to the next leader",
        (
            "tests/unit/coordinator/runtime/test_submissions.py"
            "::test_a_submission_that_becomes_durable_as_the_term_ends_is_left_to_the_next_leader[True]",
        ),
    ),
    Mutant(
        "answered_before_durable",
        "acknowledging a submission only when ZooKeeper has it",
        (
            "tests/unit/coordinator/runtime/test_submissions.py"
            "::test_a_submission_is_acknowledged_when_it_is_durable_and_carries_its_leaders_token",
            f"{_PROCESSES}::test_a_submission_that_a_frozen_leader_had_on_its_lips_is_refused",
        ),
    ),
    Mutant(
        "submission_token",
        "the token in the record of a submission",
        (
            "tests/unit/coordinator/runtime/test_submissions.py"
            "::test_a_submission_is_acknowledged_when_it_is_durable_and_carries_its_leaders_token",
            f"{_PROCESSES}::test_a_submission_that_a_frozen_leader_had_on_its_lips_is_refused",
        ),
    ),
    Mutant(
        "fault_of_one_job",
        "breaking one job off when the coordinator makes a mistake over it",
        (
            "tests/integration/coordinator/test_coordinator_jobs.py"
            "::test_a_fault_of_the_coordinator_breaks_off_one_job_only",
        ),
        raises=("_MultiThreadedRendezvous",),  # what the watch of the other job ends by
    ),
    Mutant(
        "address_is_process",
        "telling a new process from the one before it at the same address",
        (f"{_STREAMS}::test_a_new_process_is_known_by_its_incarnation_alone[the second]",),
    ),
    Mutant(
        "reports_overtaken",
        "sending reports that wait for each other before a message that was made after them",
        (f"{_TOGETHER}::test_another_message_goes_behind_the_reports_that_wait",),
    ),
    Mutant(
        "batch_of_one",
        "taking every report of a message that has several",
        (
            f"{_REPORTS}::test_reports_of_a_batch_keep_their_order_and_their_attempts",
            f"{_SIMULATION}::test_control_streams_that_break_again_and_again_restart_nothing",
        ),
    ),
    Mutant(
        "not_sent_again",
        "sending again what was not acknowledged when a control stream broke",
        (
            f"{_SESSIONS}::test_a_message_is_kept_until_it_is_acknowledged",
            f"{_STREAMS}::test_unacknowledged_messages_are_resent_with_their_numbers_on_the_next_stream",
            f"{_GREETING}::test_messages_are_repeated_on_every_stream_until_they_are_acknowledged",
            f"{_GREETING}::test_messages_queued_without_a_stream_are_sent_on_the_next_one",
            f"{_SIMULATION}::test_control_streams_that_break_again_and_again_restart_nothing",
        ),
    ),
    Mutant(
        "handled_twice",
        "dropping what was handled before the control stream broke",
        (
            f"{_SESSIONS}::test_over_streams_that_break_everything_arrives_once_and_in_order[0]",
            f"{_STREAMS}::test_repeated_messages_of_a_task_manager_are_handled_once",
            f"{_GREETING}::test_repeated_messages_of_a_leader_are_handled_once_and_acknowledged",
        ),
    ),
    Mutant(
        "numbers_restart",
        "numbering control messages for as long as the process lives",
        (
            f"{_SESSIONS}::test_with_a_new_term_numbers_continue_and_kept_messages_are_dropped",
            f"{_GREETING}::test_a_leader_that_leads_again_receives_everything_although_its_record_is_late",
        ),
    ),
    Mutant(
        "doubled_deployment",
        "ignoring a deployment that arrives twice",
        (
            f"{_DEPLOYMENTS}::test_a_doubled_deployment_is_ignored",
            f"{_SIMULATION}::test_control_streams_that_break_again_and_again_restart_nothing",
        ),
    ),
    Mutant(
        "older_attempt_runs_on",
        "cancelling the attempt that a newer one replaces",
        (
            f"{_DEPLOYMENTS}::test_a_newer_attempt_cancels_the_one_that_it_replaces",
            f"{_DEPLOYMENTS}::test_an_attempt_of_a_later_run_of_the_job_replaces_the_former_run",
        ),
    ),
    Mutant(
        "late_deployment",
        "refusing a deployment that comes behind the cancellation of its attempt",
        (f"{_DEPLOYMENTS}::test_a_deployment_that_arrives_after_its_cancellation_is_refused",),
    ),
    Mutant(
        "future_believed",
        "leaving out times far ahead of the clock when event time is moved",
        (
            f"{_AHEAD}::test_a_time_far_ahead_makes_nothing_late_and_its_record_is_in_the_result",
            f"{_AHEAD}::test_event_time_advances_by_the_accepted_times",
            f"{_AHEAD}::test_the_highest_time_within_the_bound",
        ),
    ),
    Mutant(
        "log_forgets",
        "that a snapshot refers to the files of splits at rest that it builds on",
        (
            f"{_SPLITS}::test_every_completed_snapshot_holds_every_split_as_it_was",
            f"{_SPLITS}::test_a_snapshot_writes_only_new_splits_and_few_files",
        ),
        raises=("KeyError",),  # the split that was forgotten
    ),
    Mutant(
        "mtime_prefix",
        "knowing files by their names and not by their times",
        (
            f"{_FOLDERS}::test_a_late_file_with_an_older_time_is_found",
            f"{_FOLDERS}::test_nothing_is_missed_whatever_comes_and_goes",
        ),
    ),
    Mutant(
        "role_unchecked",
        "refusing a call that the caller's roles do not allow",
        ("tests/integration/coordinator/test_coordinator_roles.py::test_every_rpc_with_every_role",),
    ),
    Mutant(
        "limits_unchecked",
        "refusing private places to jobs without the role code where files are opened",
        (
            "tests/unit/taskmanager/spark/test_limits.py::test_a_file_that_becomes_a_link_between_listing_and_reading",
            "tests/unit/taskmanager/spark/test_limits.py::test_footers_of_parquet_files_are_not_read_either",
        ),
    ),
    Mutant(
        "jwt_audience_unchecked",
        "refusing a JWT that was made for another service",
        ("tests/unit/coordinator/runtime/test_jwt_issuer.py::test_claims_that_are_wrong_or_missing",),
    ),
    Mutant(
        "seal_unchecked",
        "checking the seal of a snapshot that a job is to start from",
        (
            f"{_SEALS}::test_a_snapshot_of_another_cluster_is_refused_unless_it_is_trusted",
            f"{_SEALS}::test_a_planted_pickle_does_not_run_when_a_job_is_to_start_from_it",
        ),
    ),
    Mutant(
        "start_unpinned",
        "comparing a snapshot that a job starts from with the one that was accepted",
        (
            f"{_SEALS}::test_a_planted_pickle_does_not_run_in_a_job_that_has_no_checkpoint_of_its_own",
            f"{_SEALS}::test_a_snapshot_trusted_once_is_trusted_until_it_changes",
        ),
    ),
    Mutant(
        "hash_unchecked",
        "comparing state files with their hashes",
        (
            f"{_DAMAGED}::test_rows_of_process_functions_and_a_planted_pickle",
            f"{_DAMAGED}::test_records_in_flight_splits_at_rest_and_rows_of_sinks",
            f"{_DAMAGED}::test_a_file_without_a_known_checksum_is_not_read",
        ),
    ),
    Mutant(
        "copies_unchecked",
        "comparing local copies of state files with their hashes",
        (f"{_SIMULATION}::test_copies_that_are_lost_wrong_or_late_change_no_result",),
    ),
    Mutant(
        "adopted_splits_forgotten",
        "that an adopted source keeps the splits of a dead leader",
        (
            f"{_ADOPTION}::test_splits_that_a_dead_leader_has_assigned_are_not_assigned_again",
            f"{_TAKEN_OVER}::test_splits_that_a_dead_leader_has_given_out_are_not_given_out_again",
        ),
    ),
    Mutant(
        "adoption_aborts_nothing",
        "aborting the checkpoints that a dead leader has begun",
        (
            f"{_ADOPTION}::test_the_newest_checkpoint_is_announced_again_and_later_ones_are_aborted_everywhere",
            f"{_TAKEN_OVER}::test_a_checkpoint_that_a_dead_leader_has_begun_is_ended_before_the_next_begins",
        ),
    ),
    Mutant(
        "adopted_under_old_token",
        "rewriting the record of an adopted attempt under the token of the new leader",
        (
            f"{_ADOPTION}::test_an_attempt_that_runs_where_it_was_is_adopted_and_nothing_is_restarted",
            f"{_TAKEN_OVER}::test_splits_that_a_dead_leader_has_given_out_are_not_given_out_again",
            f"{_SIMULATION}::test_a_dead_leader_restarts_nothing_of_a_job_that_can_be_adopted",
        ),
        ("Violation",),
    ),
    Mutant(
        "endless_leader_grace",
        "ending subtasks that have been without a leader for too long",
        (
            "tests/unit/taskmanager/runtime/test_leader_grace.py::test_it_is_over_once_when_no_leader_has_come_in_time",
            f"{_TAKEN_OVER}::test_subtasks_that_have_no_leader_run_on_until_their_grace_ends",
        ),
    ),
    Mutant(
        "dead_task_manager_awaited",
        "giving up a task manager that refuses connections and has not registered",
        (
            "tests/unit/coordinator/graph/test_slots.py::"
            "test_a_job_does_not_wait_at_all_for_a_task_manager_whose_process_has_ended",
            f"{_SIMULATION}::test_a_job_does_not_wait_for_a_task_manager_that_died_with_the_leader",
        ),
    ),
    Mutant(
        "deaths_of_any_leader",
        "proving the leader's health before the recovery of a job that two leaders died of",
        (
            "tests/unit/coordinator/runtime/test_recovery_line.py::"
            "test_a_healthy_job_is_never_held_back_by_leaders_that_die_one_after_the_other",
            f"{_SIMULATION}::test_leaders_that_are_killed_one_after_the_other_hold_no_healthy_job_back",
        ),
    ),
    Mutant(
        "late_answer_ignored",
        "keeping a silent leader that answers in the end",
        (
            "tests/unit/ha/test_leader_election.py::test_a_slow_leader_that_answers_a_call_late_is_kept",
            "tests/unit/ha/test_leader_election.py::test_a_slow_leader_that_answers_the_challenge_late_is_kept_and_spared",
        ),
    ),
    Mutant(
        "adoption_is_deaf",
        "noting what subtasks report before they are adopted",
        (
            f"{_ADOPTION}::test_reports_between_registration_and_adoption_count_in_any_order",
            f"{_ADOPTION}::test_an_attempt_that_has_ended_somewhere_is_not_adopted",
            f"{_SIMULATION}::test_a_standby_adopts_what_runs_after_a_crash_at_every_step",
        ),
    ),
    Mutant(
        "late_listing_believed",
        "telling the answers to a dead leader's requests for splits apart",
        (f"{_ADOPTION}::test_splits_that_a_dead_leader_has_assigned_are_not_assigned_again",),
    ),
    Mutant(
        "newer_records_believed",
        "leaving alone what a newer version has written",
        (
            "tests/unit/ha/test_job_records.py::test_a_record_of_a_newer_version_is_refused_in_words_and_left_as_it_is",
            "tests/unit/coordinator/runtime/test_takeover_reads.py::test_records_of_a_newer_version_hold_the_job_back_and_stay",
        ),
    ),
    Mutant(
        "unknown_fields_ignored",
        "refusing a job graph with something that this version does not know",
        (
            "tests/unit/proto/test_release.py::test_a_job_graph_is_understood_whole_or_refused",
            "tests/unit/proto/test_release.py::test_a_field_that_only_an_operator_has_is_found",
            "tests/unit/taskmanager/runtime/test_deployments.py::test_an_attempt_with_something_that_this_version_does_not_know_is_refused",
        ),
    ),
    Mutant(
        "part_is_whole",
        "letting run on what does not depend on a lost task manager",
        (
            f"{_PART}::test_only_what_is_lost_is_deployed_and_nothing_is_cancelled",
            f"{_PARTS_SIMULATED}::test_what_a_lost_task_manager_did_not_run_is_not_deployed_again",
        ),
    ),
    Mutant(
        "part_forgets_splits",
        "that what runs on keeps its splits when a part restarts",
        (
            f"{_PART}::test_splits_of_what_runs_on_are_not_given_out_again_and_those_of_the_part_are",
            f"{_PARTS_SIMULATED}::test_splits_found_before_the_first_checkpoint_are_not_given_out_again",
        ),
        ("Violation",),
    ),
    Mutant(
        "part_leaves_pending",
        "aborting checkpoints in progress when a part restarts",
        (
            f"{_PART}::test_a_checkpoint_in_progress_is_aborted_where_subtasks_run_on_and_cannot_complete_later",
            f"{_PARTS_SIMULATED}::test_a_part_begins_once_what_runs_on_knows_how_the_checkpoints_before_have_ended",
        ),
    ),
    Mutant(
        "part_unaware_of_commit",
        "announcing a checkpoint to what runs on that was being written when a part was lost",
        (
            f"{_PART}::"
            "test_a_checkpoint_that_was_being_written_is_announced_where_subtasks_run_on_before_the_part_begins",
            f"{_PARTS_SIMULATED}::test_what_runs_on_hears_of_a_checkpoint_that_was_being_written_when_a_part_was_lost",
        ),
    ),
    Mutant(
        "part_replaces_all",
        "deploying a part beside what runs on",
        (
            f"{_DEPLOYMENTS}::test_an_attempt_replaces_those_only_beside_which_it_is_not_deployed",
            f"{_PARTS_SIMULATED}::test_the_slot_of_a_failed_subtask_restarts_alone",
        ),
    ),
    Mutant(
        "part_cancels_all",
        "cancelling a failed slot alone",
        (
            f"{_DEPLOYMENTS}::test_some_slots_of_an_attempt_end_and_the_others_run_on",
            f"{_PARTS_SIMULATED}::test_the_slot_of_a_failed_subtask_restarts_alone",
        ),
    ),
    Mutant(
        "first_positions_not_stored",
        "storing where a source began before it is read",
        (
            f"{_POSITIONS}::test_no_split_is_assigned_before_the_record_is_written",
            "tests/simulation/test_simulated_positions.py"
            "::test_an_attempt_without_a_checkpoint_begins_where_the_first_began",
        ),
    ),
    Mutant(
        "part_fails_twice",
        "one failure for all that fails until a part begins again",
        (
            f"{_PART}::test_what_is_lost_at_the_same_time_is_one_failure_for_the_restart_strategy",
            f"{_PART}::test_subtasks_that_fail_alike_at_the_same_time_are_one_attempt_that_has_failed_so",
            f"{_PARTS_SIMULATED}::test_what_is_lost_at_the_same_time_is_one_failure",
        ),
    ),
    Mutant(
        "part_takes_kept_slots",
        "giving what runs on its slots before a lost part",
        (
            "tests/unit/coordinator/graph/test_slots.py::test_an_heir_where_subtasks_run_on_does_not_take_their_slots",
            f"{_PARTS_SIMULATED}::test_a_part_whose_copies_are_where_others_run_on_does_not_take_their_slots",
        ),
    ),
    Mutant(
        "part_deaf_to_lists",
        "hearing lists of a source that runs on until a part is deployed",
        (
            f"{_PART}::test_an_answer_about_a_source_that_runs_on_counts_while_the_record_of_the_part_is_written",
            f"{_PARTS_SIMULATED}::test_an_answer_of_a_lister_that_runs_on_is_not_lost_while_a_part_restarts",
        ),
        ("ValueError",),
    ),
    Mutant(
        "part_left_running",
        "cancelling each attempt of a job that is broken off",
        (
            "tests/unit/coordinator/runtime/test_broken_job.py::test_of_a_job_that_runs_in_several_attempts_each_is_cancelled_where_it_runs",
            f"{_PARTS_SIMULATED}::test_each_attempt_of_a_job_that_is_broken_off_ends",
        ),
    ),
    Mutant(
        "part_started_late",
        "that what runs on has started in an earlier attempt",
        (f"{_PART}::test_only_what_begins_is_in_the_trace_of_the_restart",),
    ),
    Mutant(
        "part_judged_by_its_past",
        "comparing what runs on with a new part by their work from then on",
        (f"{_PART}::test_the_work_before_a_part_restarted_says_nothing_of_how_fast_the_others_are_now",),
    ),
    Mutant(
        "part_doubts_commits",
        "knowing what was committed before a part was lost",
        (
            f"{_PART}::test_what_all_had_committed_is_not_in_doubt_when_the_job_is_cancelled_before_the_part_is_deployed",
            f"{_PARTS_SIMULATED}::test_a_job_that_is_cancelled_before_a_part_begins_does_not_doubt_what_was_committed",
        ),
    ),
    Mutant(
        "part_waits_for_ever",
        "a limit for how long the rest runs on without a lost part",
        (
            f"{_PART}::test_what_runs_on_does_not_go_on_for_long_without_checkpoints_while_the_part_waits_for_slots",
            f"{_PARTS_SIMULATED}::test_the_rest_does_not_run_on_for_ever_where_there_are_no_slots_for_a_part",
        ),
    ),
    Mutant(
        "had_records_again",
        "dropping what a receiver has had from an earlier attempt of its sender",
        (
            f"{_OUTBOX}::test_what_the_receiver_has_had_is_only_for_another_attempt_of_it",
            f"{_LOST}",
        ),
    ),
    Mutant(
        "positions_forgotten",
        "noting how far the splits of a sender have come",
        (
            f"{_BATCHES}::test_a_batch_is_passed_on_with_its_last_table",
            f"{_LOST}",
        ),
    ),
    Mutant(
        "joined_positions_lost",
        "noting it where two batches come in one message",
        (f"{_BATCHES}::test_the_end_of_a_batch_may_come_in_one_table_with_the_beginning_of_the_next",),
    ),
    Mutant(
        "batch_passed_in_parts",
        "passing on whole batches only",
        (
            f"{_BATCHES}::test_a_batch_is_passed_on_with_its_last_table",
            f"{_LOST}",
        ),
    ),
    Mutant(
        "log_from_before",
        "sending a receiver again only what follows its checkpoint",
        (
            f"{_OUTBOX}::test_a_channel_without_its_receiver_sends_nothing_and_keeps_everything",
            f"{_LOST}",
        ),
    ),
    Mutant(
        "barrier_while_behind",
        "taking part in checkpoints only where the receivers are",
        (f"{_LOST}",),
    ),
    Mutant(
        "components_as_one",
        "telling components of a job apart",
        (
            f"{_COMPONENTS}::test_the_loss_of_a_task_manager_without_a_component_does_not_touch_it",
            f"{_COMPONENTS_SIMULATED}::test_a_lost_task_manager_restarts_only_what_depends_on_it",
        ),
    ),
    Mutant(
        "component_left_behind",
        "restarting all of a component that keeps nothing of what it sends",
        (f"{_COMPONENTS}::test_a_component_that_restarts_as_a_whole_takes_its_slots_and_no_others",),
    ),
    Mutant(
        "gaps_unheard",
        "restarting everything at once where a part could not get again what it has to",
        (
            f"{_WITH_EXCHANGE}::test_a_log_that_is_too_small_restarts_the_whole_job_at_once",
            f"{_EXCHANGING}::test_where_the_leader_knows_that_in_time_no_part_is_deployed",
        ),
    ),
    Mutant(
        "chance_unheard",
        "restarting everything at once where what is made again may be something else",
        (
            f"{_WITH_EXCHANGE}::test_a_source_that_may_make_something_else_restarts_with_all_that_have_had_it",
            f"{_EXCHANGING}::test_where_the_leader_knows_of_chance_in_time_no_part_is_deployed",
        ),
    ),
    Mutant(
        "chance_beside_others",
        "refusing to make something else again for those that run on",
        (
            "tests/integration/taskmanager_spark/test_spark_reproducible.py"
            "::test_it_does_not_start_beside_what_has_had_other_results",
        ),
    ),
    Mutant(
        "gap_from_before",
        "forgetting what was not kept before the newest checkpoint",
        (f"{_WITH_EXCHANGE}::test_a_checkpoint_that_is_completed_after_the_report_closes_the_gap",),
    ),
    Mutant(
        "former_sender",
        "shutting out the former attempt of a sender",
        (
            "tests/integration/taskmanager_runtime/test_exchange_rejoined.py::test_an_earlier_attempt_of_the_sender_is_shut_out",
        ),
    ),
    Mutant(
        "splits_elsewhere",
        "giving splits of a lost part that no checkpoint has to the same subtasks",
        (
            "tests/unit/coordinator/job/test_splits.py"
            "::test_splits_of_a_lost_part_that_no_checkpoint_has_are_given_to_the_same_subtasks_at_once",
            f"{_EXCHANGING}::test_splits_that_are_found_by_and_by_are_read_by_the_same_subtask_again",
        ),
    ),
    Mutant(
        "nothing_is_adopted",
        "adopting nothing before the first attempt",
        (
            "tests/unit/coordinator/job/test_adoption.py::test_there_is_nothing_to_adopt_before_the_first_attempt_of_a_job_that_begins_from_a_savepoint",
        ),
    ),
    Mutant(
        "part_adopts_strays",
        "adopting nothing beside subtasks that were replaced and do not know it",
        (f"{_PART}::test_a_new_leader_does_not_adopt_beside_a_subtask_whose_cancellation_was_lost",),
    ),
)
