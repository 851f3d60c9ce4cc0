"""Every verb and option is documented in both languages; every catalogue number has a source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from lightloom.cli.main import VERBS, cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every verb and sub-verb with its full name."""
    context = click.Context(cli)
    todo: list[tuple[str, click.Command]] = []
    for name in VERBS:
        command = cli.get_command(context, name)
        assert command is not None, name
        todo.append((name, command))
    while todo:
        name, command = todo.pop()
        yield name, command
        if isinstance(command, click.Group):
            todo += [(f"{name} {sub}", c) for sub, c in command.commands.items()]


def test_every_verb_has_help() -> None:
    silent = [name for name, command in commands() if not (command.help or command.short_help)]
    assert not silent, silent


def test_every_verb_and_option_is_in_the_guides() -> None:
    english = "\n".join(p.read_text() for p in DOCS.glob("*.md") if not p.name.endswith(".zh.md"))
    missing = []
    for name, command in commands():
        if f"lightloom {name}" not in english:
            missing.append(f"lightloom {name}")
        for option in command.params:
            if isinstance(option, click.Option):
                long = max(option.opts, key=len)
                if long not in english:
                    missing.append(f"lightloom {name} {long}")
    assert not missing, "not in docs/*.md:\n" + "\n".join(missing)


def test_every_guide_has_its_chinese_twin() -> None:
    shared = {"words.md", "lab-notes.md"}
    lonely = [p.name for p in DOCS.glob("*.md") if not p.name.endswith(".zh.md")
              and p.name not in shared and not (DOCS / f"{p.stem}.zh.md").exists()]  # fmt: skip
    assert not lonely, lonely


def test_help_loads_nothing_heavy() -> None:
    heavy = ("numpy", "rich", "torch", "starlette", "msgspec", "yaml", "matplotlib")
    code = (
        "import sys; sys.argv=['lightloom','--help']\n"
        "from lightloom.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("[]"), done.stderr


def test_verb_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from lightloom.cli.main import cli, VERBS\n"
        "for verb in VERBS:\n"
        "    assert CliRunner().invoke(cli, [verb, '--help']).exit_code == 0, verb\n"
        "print([m for m in ('numpy', 'rich', 'torch', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_project_files_are_there() -> None:
    for name in ("README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE", "NOTICE", "go.py",
                 ".ci/run", "docs/words.md", "docs/lab-notes.md"):  # fmt: skip
        assert (ROOT / name).stat().st_size > 0, name
