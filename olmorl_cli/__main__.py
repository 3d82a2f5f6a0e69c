"""Entry point: runs the command line and turns what happens into an exit code."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from olmorl_cli import __version__
from olmorl_cli.errors import ExitCode, OlmorlError, ReaderGone, without_secrets
from olmorl_cli.output import discard, print_error
from olmorl_cli.start import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _occupy_closed_descriptors()
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _run(arguments)
        if code not in (ExitCode.OK, ExitCode.BAD_DATA):
            discard(1)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except (ReaderGone, BrokenPipeError):
        discard(1)  # the reader has what it wanted
        return ExitCode.OK
    except OSError as error:
        print_error(f"olmorl: error: standard output: cannot be written: {error.strerror}. Make room, or use -o")
        discard(1)
        return ExitCode.FAILED


def _run(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:  # the commonest call of scripts need not build the whole command line
        sys.stdout.write(f"olmorl {__version__}\n")
        return ExitCode.OK
    try:
        from olmorl_cli.cli import app

        return int(app(args=list(arguments), prog_name="olmorl", standalone_mode=False) or 0)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as stop:  # the option parser's answer to a closed pipe
        if isinstance(stop.__context__, BrokenPipeError):
            raise ReaderGone from stop
        raise
    except OlmorlError as error:
        _show_traceback(arguments)
        for line in error.lines:
            print_error(f"olmorl: error: {line}")
        return error.exit_code
    except MemoryError:
        _show_traceback(arguments)
        print_error("olmorl: error: out of memory. Score fewer files at a time")
        return ExitCode.FAILED
    except (OSError, ReaderGone):
        raise
    except Exception as error:
        if type(error).__name__ == "Abort":
            return ExitCode.INTERRUPTED
        if (code := _signalled(error)) is not None:
            return code
        _show_traceback(arguments)
        message = _usage_message(error) or _fault(error)
        print_error(f"olmorl: error: {message}")
        return ExitCode.FAILED


def _signalled(error: BaseException | None) -> int | None:
    """The exit code of the signal that an error came of; None where it came of none.

    What a signal raises between two steps of a library may come out as its error: a lock that is let go and was not held.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code
        error = error.__cause__ or error.__context__
    return None


def _fault(error: Exception) -> str:
    """What is said of an error that nobody foresaw."""
    said = " ".join(str(error).split())
    if type(error).__module__.startswith("pyarrow."):
        return f"a column is of a type, or has a value, that cannot be worked on: {said}. Write it as another type"
    return f"{type(error).__name__}: {said}. This is a fault of olmorl; --debug shows where"


def _usage_message(error: Exception) -> str | None:
    """What the option parser says, in one line; None if the error is not its own.

    Its exceptions are told by their method: the module that they come from differs between versions of typer.
    """
    format_message: Callable[[], str] | None = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context: Any = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "olmorl")
    said = " ".join(format_message().split()).rstrip(".")
    return f"{said}{'' if said.endswith('?') else '.'} See {command} --help"


def _show_traceback(arguments: Sequence[str]) -> None:
    if "--debug" in arguments:
        import traceback

        for line in without_secrets(traceback.format_exc()).splitlines():
            print_error(line)


def _terminate(number: int, _: object) -> None:
    """End as on any failure, so that nothing half-written stays."""
    sys.exit(128 + number)


def _occupy_closed_descriptors() -> None:
    """Give /dev/null to standard streams that are closed, so that no file of ours gets their number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    run()
