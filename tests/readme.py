"""The README's console blocks and tables, run and read; `python -m tests.readme` writes what they give into the README."""

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

from olmorl_cli.core.named import NAMED
from olmorl_cli.rollouts.roles import ROLES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PROGRESS = re.compile(r"scoring .* \d:\d\d:\d\d$")
"""A bar that the terminal has wiped out at the end."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(line: str) -> str:
    """What a shell line prints on a terminal of 100 columns, in sample_data, without colours."""
    reader, writer = pty.openpty()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "TERM": "xterm", "COLUMNS": "100", "LINES": "50", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    process = subprocess.Popen(
        ["bash", "-c", line], stdin=writer, stdout=writer, stderr=writer, cwd=ROOT / "sample_data", env=environment
    )
    os.close(writer)
    said = b""
    while process.poll() is None or select.select([reader], [], [], 0)[0]:
        if select.select([reader], [], [], 0.05)[0]:
            try:
                said += os.read(reader, 65536)
            except OSError:
                break
    process.wait()
    os.close(reader)
    text = ESCAPES.sub("", said.decode()).replace("\r\n", "\n")
    lines = [part.rsplit("\r", 1)[-1].rstrip() for part in text.split("\n")]
    lines = [line for line in lines if not PROGRESS.match(line)]
    return "\n".join(part for number, part in enumerate(lines) if part or 0 < number < len(lines) - 1)


def commands(block: str) -> list[str]:
    """The lines of a console block that are typed."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def session() -> list[str]:
    """The console blocks of the README after the set-up's."""
    return BLOCK.findall(README.read_text())[1:]


def played(block: str) -> str:
    """A console block with what its commands print now."""
    shown = []
    status = "true"
    for command in commands(block):
        shown.append(f"$ {command}\n{on_a_terminal(f'{status}; {command}')}")
        status = f"{command} > /dev/null 2>&1"
    return "\n".join(part.rstrip("\n") for part in shown) + "\n"


def roles_table() -> str:
    """Rows of the README's table of roles."""
    rows = []
    for role in ROLES.values():
        if role.names:
            names = "; ".join(" ".join(f"`{name}`" for name in rank) for rank in role.ranks)
            if role.repeating:
                names += f" ({', '.join(role.repeating)} only where values repeat)"
            rows.append(f"| {role.name} | `{role.option}` | {names} |")
    return "\n".join(rows)


def recipes_table() -> str:
    """The README's table of named recipes: what each sets otherwise than OlmoRL."""
    default = NAMED["olmorl"]()
    rows = ["| name | differs from `olmorl` in |", "|---|---|"]
    for name, make in NAMED.items():
        changes = [f"{k} {v}" for k, v in vars(make()).items() if k != "name" and v != getattr(default, k)]
        rows.append(f"| `{name}` | {', '.join(changes) or '-'} |")
    return "\n".join(rows)


def written() -> str:
    """The README with its sessions and tables as they are now."""
    text = README.read_text()
    for block in session():
        text = text.replace(f"```console\n{block}```", f"```console\n{played(block)}```")
    for mark, table in (("roles", roles_table()), ("recipes", recipes_table())):
        text = re.sub(rf"<!-- {mark} -->\n(\|.*\n)*\n", lambda _, m=mark, t=table: f"<!-- {m} -->\n{t}\n\n", text)
    return text


if __name__ == "__main__":
    README.write_text(written())
