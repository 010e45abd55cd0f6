"""The contract of a sink: hidden until the commit, visible once however often it commits, gone after an abort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lockgate.connectors import CustomSink, Transaction
from lockgate.testing.travel import pickled_copy, require

if TYPE_CHECKING:
    import pyarrow as pa

Visible = Callable[[], Iterable[Mapping[str, Any]]]


def check_sink(make: Callable[[], CustomSink], visible: Visible, rows: pa.Table) -> None:
    """Stages, commits and aborts like jobs that are killed: with new copies, repeatedly, late, by zombies.

    make: returns a new object, always for the same target, which is empty at the start. visible: what a consumer would
    find there now, a mapping for each row. rows: the rows to write: four or more, all different. Raises AssertionError
    with one sentence that says what would go wrong in a job.
    """
    _SinkCheck(make, visible, rows).run()


class _SinkCheck:
    def __init__(self, make: Callable[[], CustomSink], visible: Visible, rows: pa.Table) -> None:
        require(rows.num_rows >= 4, "rows: four or more are needed to tell transactions apart")
        self._make = make
        self._visible = visible
        self._pieces = [rows.slice(n, 1) for n in range(3)] + [rows.slice(3)]
        self._name = type(make()).__name__
        self._committed: list[pa.Table] = []

    def run(self) -> None:
        """Each step continues with the result of the one before."""
        self._expect("before anything was written")
        first = self._hidden_until_committed()
        self._again(first)
        second = self._staged_again()
        self._aborted(first, second)
        self._late_zombie()
        self._keep_transactions_apart()

    def _hidden_until_committed(self) -> Transaction:
        transaction = _transaction(checkpoint_id=1)
        self._stage(transaction, 0)
        self._expect("when rows are staged and not committed")
        self._expect_staged(transaction, True)
        self._commit(transaction, 0)
        self._expect("after the first commit")
        self._expect_staged(transaction, False)
        return transaction

    def _again(self, committed: Transaction) -> None:
        """A crash between the commit and its acknowledgement: the next attempt commits again."""
        for _ in range(2):
            self._call("commit", committed)
            self._expect("when a transaction is committed again by another process")

    def _staged_again(self) -> Transaction:
        """An upload that failed half-way is repeated; then the process dies before it commits."""
        transaction = _transaction(checkpoint_id=2)
        self._stage(transaction, 1)
        self._stage(transaction, 1)
        self._expect("when rows are staged twice and not committed")
        self._commit(transaction, 1)
        self._expect("after the commit of rows staged twice by other processes")
        return transaction

    def _aborted(self, first: Transaction, second: Transaction) -> None:
        """Rows that a dead attempt has staged for a checkpoint that was never completed."""
        left = _transaction(checkpoint_id=3)
        self._call("abort", _transaction(checkpoint_id=4))
        self._stage(left, 2)
        self._expect_staged(left, True)
        for _ in range(2):
            self._call("abort", left)
            self._expect_staged(left, False)
            self._expect("after an abort")
        for committed in (first, second):
            self._call("abort", committed)
            self._expect("when a committed transaction is aborted")

    def _late_zombie(self) -> None:
        """A replaced attempt wakes up, and commits transactions that the new one has committed already."""
        zombie = self._opened()
        old = _transaction(checkpoint_id=5)
        zombie.stage(old, self._pieces[2])
        self._commit(old, 2)
        self._expect("after the new attempt has committed a snapshot's pending output")
        new = _transaction(checkpoint_id=6, attempt=2)
        self._stage(new, 3)
        zombie.commit(old)
        self._expect("when a zombie commits what was committed before it")
        zombie.close()
        self._expect_staged(new, True)
        self._commit(new, 3)
        self._expect("after the commit behind a zombie's")

    def _keep_transactions_apart(self) -> None:
        """Two subtasks, and two jobs, have the same checkpoint ids."""
        others = [_transaction(7), _transaction(7, subtask=1), _transaction(7, run_id="another-run")]
        for number, transaction in enumerate(others):
            self._stage(transaction, number)
        self._call("abort", others[0])
        for number, transaction in list(enumerate(others))[1:]:
            self._expect_staged(transaction, True)
            self._commit(transaction, number)
            self._expect("when other subtasks and jobs have the same checkpoint id")

    def _opened(self) -> CustomSink:
        sink = pickled_copy(self._make())
        sink.open()
        return sink

    def _call(self, method: str, *arguments: Any) -> None:
        """With a new copy: simulates another process."""
        sink = self._opened()
        try:
            getattr(sink, method)(*arguments)
        finally:
            sink.close()

    def _stage(self, transaction: Transaction, piece: int) -> None:
        self._call("stage", transaction, self._pieces[piece])

    def _commit(self, transaction: Transaction, piece: int) -> None:
        self._call("commit", transaction)
        self._committed.append(self._pieces[piece])

    def _expect(self, when: str) -> None:
        found = Counter(_frozen(row) for row in self._visible())
        wanted = Counter(_frozen(row) for table in self._committed for row in table.to_pylist())
        many, few = list((found - wanted).elements()), list((wanted - found).elements())
        differences = [f"{len(many)} row(s) too many, such as {dict(many[0])}"] if many else []
        differences += [f"{len(few)} row(s) too few, such as {dict(few[0])}"] if few else []
        require(not differences, f"{self._name} is not exact: {when} there are {' and '.join(differences)}")

    def _expect_staged(self, transaction: Transaction, is_staged: bool) -> None:
        sink = self._opened()
        names = list(sink.staged())
        sink.close()
        require(
            (transaction.name in names) == is_staged,
            f"{self._name}.staged() {'lacks' if is_staged else 'still has'} {transaction.name!r}, which was"
            f" {'staged' if is_staged else 'committed or aborted'}; it gave {names}",
        )


def _transaction(checkpoint_id: int, subtask: int = 0, attempt: int = 1, run_id: str = "a-run") -> Transaction:
    return Transaction(run_id, "write_to-1", subtask, attempt, checkpoint_id)


def _frozen(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))
