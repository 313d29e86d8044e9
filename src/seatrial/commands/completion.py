"""`seatrial completion`: the script by which a shell completes commands and options.

    eval "$(seatrial completion bash)"                                          now; in ~/.bashrc, always
    seatrial completion zsh >~/.zfunc/_seatrial                                 with ~/.zfunc in fpath
    seatrial completion fish >~/.config/fish/completions/seatrial.fish
"""
from __future__ import annotations

import sys

import typer

SHELLS = ("bash", "zsh", "fish")


def register(app: typer.Typer) -> None:
    @app.command("completion", help="Print the script by which bash, zsh or fish completes seatrial's commands and options.")
    def completion(
        shell: str = typer.Argument(help="bash, zsh or fish."),
    ) -> None:
        from typer.completion import get_completion_script

        from seatrial import fields
        from seatrial.cli import COMPLETING
        from seatrial.errors import BadInput

        if shell not in SHELLS:
            raise BadInput(f"{shell!r}: no completion for this shell; {fields.nearest(shell, SHELLS)}")
        sys.stdout.write(get_completion_script(prog_name="seatrial", complete_var=COMPLETING, shell=shell) + "\n")
