"""The command `lockgate`. Each command is imported only when it is used, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

# Command: its module, and its line in `lockgate --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "cluster": ("lockgate.commands.cluster:cluster", "Run a whole cluster on this machine."),
    "submit": ("lockgate.commands.submit:submit", "Submit a pipeline file or a job graph."),
    "jobs": ("lockgate.commands.jobs:jobs", "List the jobs."),
    "job": ("lockgate.commands.jobs:job", "Show one job: state, records, last checkpoint."),
    "watch": ("lockgate.commands.jobs:watch", "Follow a job until it ends, across failovers."),
    "logs": ("lockgate.commands.logs:logs", "Show the log lines of a local cluster, or of one job."),
    "checkpoints": ("lockgate.commands.jobs:checkpoints", "List a job's completed checkpoints."),
    "query": ("lockgate.commands.query:query", "Read what an operator holds for a key."),
    "savepoint": ("lockgate.commands.savepoints:savepoint", "Take, list and dispose of savepoints."),
    "stop": ("lockgate.commands.savepoints:stop", "Stop a job with a savepoint."),
    "rescale": ("lockgate.commands.savepoints:rescale", "Change the parallelism of a running job."),
    "cancel": ("lockgate.commands.jobs:cancel", "End a job."),
    "release": ("lockgate.commands.jobs:release", "Retry a job that is held back."),
    "leader": ("lockgate.commands.jobs:leader", "Show which coordinator leads."),
    "status": ("lockgate.commands.status:status", "Show coordinators, task managers and slots."),
    "top": ("lockgate.commands.top:top", "Watch the cluster and its jobs."),
    "drill": ("lockgate.commands.drill:drill", "Kill parts of a cluster under load and check the result."),
    "run": ("lockgate.commands.run:run", "Preview a pipeline file on a sample, without a cluster."),
    "demo": ("lockgate.commands.drill:demo", "Count words, kill the leader, compare with Spark."),
    "zookeeper": ("lockgate.commands.zookeeper:zookeeper", "Run a ZooKeeper server."),
    "coordinator": ("lockgate.commands.processes:coordinator", "Run one coordinator."),
    "taskmanager": ("lockgate.commands.processes:taskmanager", "Run one task manager."),
    "health": ("lockgate.commands.health:health", "Check whether a process is ready to serve."),
    "tokens": ("lockgate.commands.tokens:tokens", "Give limited access without the secret."),
    "certificates": ("lockgate.commands.certificates:certificates", "Make certificates for TLS."),
    "prepare": ("lockgate.commands.processes:prepare", "Halve the start-up time of task managers here."),
}
SECTIONS = {
    "Try it": ("cluster", "run", "demo", "drill"),
    "Jobs": (
        "submit",
        "jobs",
        "job",
        "watch",
        "logs",
        "checkpoints",
        "query",
        "savepoint",
        "stop",
        "rescale",
        "cancel",
        "release",
        "leader",
        "status",
        "top",
    ),
    "Processes of a real cluster": (
        "zookeeper",
        "coordinator",
        "taskmanager",
        "health",
        "tokens",
        "certificates",
        "prepare",
    ),
}

EXIT_FAULT, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 130


class LazyGroup(click.Group):
    """A command group with names and one-line help texts, which imports commands lazily."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the nearest command for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean `lockgate {close[0]}`?" if close else "; `lockgate --help` lists the commands"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By section, without importing any."""
        del ctx
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"lockgate {version('lockgate')}")
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Streaming jobs on PySpark that outlive their coordinator.

    \b
    A first run, in two terminals:
      lockgate cluster                     # ZooKeeper, 2 coordinators, 2 task managers; Ctrl-C ends it
      lockgate submit wordcount.py --wait  # found by itself: same folder

    \b
    wordcount.py:
      from lockgate import Job, count
      job = Job("wordcount", parallelism=2)
      words = job.read_text("books").sql("SELECT explode(split(value, ' ')) AS word FROM input")
      words.key_by("word").aggregate(n=count()).write_sql("sqlite:///counts.db", "counts", key="word")
      job.submit()

    \b
    Commands find their cluster in this order: --cluster HOST:PORT,... (or the directory of a
    `lockgate cluster`), LOCKGATE_CLUSTER, the settings file (--config, LOCKGATE_CONFIG or
    ./lockgate.toml), ./.lockgate, and finally 127.0.0.1:7070.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 success, 1 an internal error or a failed job, 2 a user error, 130 interrupted."""
    # gRPC's fork handlers cost time and have killed JVM children; nothing here forks with open channels.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _open_streams()
    if arguments is None and {"submit", "run"} & set(sys.argv[1:]):
        _fix_hash_seed()
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def _open_streams() -> None:
    """What the caller has closed leads nowhere from now on: no file or socket may get its number, and what would be
    printed is not wanted. In this order, each gets its own number, which processes started here inherit.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def _fix_hash_seed() -> None:
    """Restarts this command with a fixed hash seed: a pickled function may hold a set, and the same file has to give
    the same bytes, or it is another job.
    """
    if "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run(arguments: list[str]) -> int:
    """Runs a command and returns its exit code; errors have been written to stderr."""
    try:
        result: Any = cli.main(arguments, prog_name="lockgate", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USER_ERROR
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        hint = f" (see `{command} --help`)" if command and "`" not in error.format_message() else ""
        return _fail(error.format_message() + hint, EXIT_USER_ERROR)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader has closed the pipe: nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAULT
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    from lockgate.errors import UserError

    if isinstance(error, UserError):
        return _fail(str(error), error.exit_code)
    from lockgate.commands.fault_log import write_fault

    return _fail(f"unexpected {type(error).__name__}: {error}; {write_fault(error)}", EXIT_FAULT)


def _fail(message: str, code: int) -> int:
    from lockgate_common.masking import masked
    from lockgate_common.printable import printable

    sys.stdout.flush()
    click.echo(f"error: {printable(masked(message))}", err=True)
    return code
