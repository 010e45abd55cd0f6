"""Every mutant, and the small set of tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass

_SIMULATION = "tests/simulation/test_simulation.py"
_CRASH = f"{_SIMULATION}::test_a_standby_takes_over_after_a_crash_at_every_step"
_USURP = f"{_SIMULATION}::test_a_leader_that_is_replaced_at_any_step_and_goes_on_does_no_harm"
_SINKS = "tests/unit/taskmanager/spark/test_sink_contract.py"
_ALIGNMENT = "tests/unit/taskmanager/barrier/test_barrier_handler.py"
_MACHINE = "tests/unit/taskmanager/task/test_subtask_machine.py"


@dataclass(frozen=True)
class Mutant:
    """plugin: the module below tests.mutation that applies it. off: what is switched off, for people."""

    plugin: str
    off: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "epoch_check",
        "the epoch check in a leader's writes",
        (
            "tests/unit/ha/test_job_records.py::test_a_superseded_leader_can_write_nothing",
            "tests/integration/ha/test_ha_contract.py::test_tokens_rise_and_a_zombies_write_is_refused",
            _USURP,
        ),
    ),
    Mutant(
        "token_fence",
        "the task managers' refusal of older tokens",
        (
            "tests/unit/taskmanager/exchange/test_exchange_elements.py"
            "::test_the_fence_refuses_what_is_older_than_the_highest_seen",
        ),
    ),
    Mutant(
        "alignment",
        "holding a channel back until every barrier is there",
        (
            f"{_ALIGNMENT}::test_the_channel_that_delivered_is_held_until_the_last_one_has",
            "tests/property/taskmanager_barrier/test_alignment_property.py",
            _CRASH,
        ),
    ),
    Mutant(
        "file_commit_twice",
        "the file sink's idempotent commit",
        (
            f"{_SINKS}::test_committing_again_changes_nothing",
            f"{_SINKS}::test_a_commit_that_was_done_before_the_crash_is_not_done_twice",
            f"{_SINKS}::test_a_zombie_cannot_show_what_is_not_in_a_completed_snapshot",
        ),
    ),
    Mutant(
        "sql_commit_twice",
        "the SQL sink's ledger of commits",
        (
            f"{_SINKS}::test_committing_again_changes_nothing",
            f"{_SINKS}::test_a_zombie_cannot_show_what_is_not_in_a_completed_snapshot",
        ),
    ),
    Mutant(
        "commit_before_persist",
        "waiting for ZooKeeper before sinks may commit",
        (
            "tests/unit/coordinator/test_job_master_life.py::test_a_checkpoint_is_persisted_before_anyone_is_told",
            _CRASH,
        ),
    ),
    Mutant(
        "ack_before_upload",
        "waiting for the upload before the acknowledgement",
        (f"{_MACHINE}::test_no_ack_before_the_upload_and_none_without_it", _CRASH),
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
)
