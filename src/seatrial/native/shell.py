"""Options in a shell script, an arguments file or a command line, without running any of it.

    flags(text)             [Flag("num_layers", ("24",)), …]: in the order of the text, $VARIABLES put in where it sets them
    launched(flags)         Started(nodes=2, procs_per_node=8): what torchrun, srun or accelerate are told

Nothing is executed and no variable of this machine is looked at: what the text does not set stays a $NAME, and whoever reads
the flag says so.
"""
from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.errors import BadInput

_SETS = re.compile(r"(?:export\s+|declare\s+(?:-\w+\s+)?|local\s+)?([A-Za-z_]\w*)\+?=(.*)", re.S)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^${}]*))?(?:\[[@*]\])?\}|(\w+))")
_SUM = re.compile(r"\$\(\(\s*([\w\s$*+{}/()]+?)\s*\)\)")
_FLAG = re.compile(r"(?:--[A-Za-z][\w.-]*|-[A-Za-z])(?:=.*)?", re.S)
END = "\n"
DEEPEST = 8
"""Variables in variables."""
LONGEST = 20_000
"""Characters of a word with its variables put in: a few lines of them would stand for more than memory holds."""


@dataclass(frozen=True)
class Flag:
    name: str
    """Without dashes in front; those inside are underscores, as argparse has them."""
    values: tuple[str, ...]
    written: str
    """--num-layers"""


class Started(NamedTuple):
    """What the launcher is told; None where it is not said."""

    nodes: int | None = None
    procs_per_node: int | None = None
    processes: int | None = None

    @property
    def world(self) -> int | None:
        """By the processes of a node, of one where nobody says how many there are."""
        return (self.nodes or 1) * self.procs_per_node if self.procs_per_node else None


def words(text: str) -> list[str]:
    """As a shell would divide it, comments left out, with a word of its own for the end of each line. A text that no shell
    would take is divided at blanks."""
    text = re.sub(r"\\\r?\n", " ", text)
    found: list[str] = []
    for line in _lines(text):
        try:
            found += shlex.split(line, comments=True)
        except ValueError:
            found += line.split()
        found.append(END)
    return found


def _lines(text: str) -> Iterator[str]:
    """Lines, those that a quotation goes over together."""
    held = ""
    for line in text.splitlines():
        held = f"{held}\n{line}" if held else line
        try:
            shlex.split(held, comments=True)
        except ValueError:
            if held.count("\n") < 400:
                continue
        yield held
        held = ""
    if held:
        yield from held.splitlines()


def flags(text: str) -> list[Flag]:
    """Every option of the text, those inside of quoted variables included, each once for each place."""
    known, rest = _taken_apart(text)
    filled = ((word, put_in(word, known)) for word in rest)
    return list(_flags([one for word, full in filled for one in (_divided(full) if full != word and " " in full else [full])]))


def variables(text: str) -> dict[str, str]:
    """What the text sets."""
    return _taken_apart(text)[0]


def _taken_apart(text: str) -> tuple[dict[str, str], list[str]]:
    """Variables, and the words that may be options."""
    known: dict[str, str] = {}
    rest: list[str] = []
    for line in words(_arrays(text)):
        found = _SETS.fullmatch(line)
        if found and not line.startswith("-"):
            more = f"{known.get(found[1], '')} " if "+=" in line[: found.start(2)] else ""
            known[found[1]] = put_in(more + found[2], known)  # NGPU=${NGPU:-8} speaks of what was there before
            if re.search(r"(^|\s)--?[A-Za-z]", found[2]):
                rest += found[2].split() if "$(" in found[2] else _divided(found[2])
        elif re.search(r"\s--[a-z]", line):  # a command in quotes: bash -c '…'
            rest += [*_divided(line), END]
        else:
            rest.append(line)
    return known, rest


def _arrays(text: str) -> str:
    """FLAGS=( --a 1 ) and FLAGS+=( … ) as the words alone."""
    return re.sub(r"(^|\s)(?:export\s+|declare\s+-a\s+)?\w+\+?=\(((?:[^()'\"]|'[^']*'|\"[^\"]*\"|\([^()]*\))*)\)",
                  lambda found: f"{found[1]}{found[2]}\n", text)


def _divided(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def put_in(word: str, known: dict[str, str]) -> str:
    """$NAME, ${NAME}, ${NAME:-4} and $((A * B)) with what the text says of them."""
    for _ in range(DEEPEST):
        before = word
        word = _VARIABLE.sub(lambda found: known.get(found[1] or found[3], found[2] or found.group()), word)
        word = _SUM.sub(lambda found: _product(found[1], known) or found.group(), word)
        if len(word) > LONGEST:
            return before
        if word == before:
            break
    return word


def _product(text: str, known: dict[str, str]) -> str:
    """A product or quotient of whole numbers; empty where it is anything else."""
    parts = re.split(r"([*/])", re.sub(r"[\s${}()]", "", text))
    numbers = [known.get(part, part) for part in parts[::2]]
    if not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return ""
    found = int(numbers[0])
    for sign, number in zip(parts[1::2], numbers[1:]):
        if sign == "/" and not int(number):
            return ""
        found = found * int(number) if sign == "*" else found // int(number)
    return str(found)


def _flags(found: list[str]) -> Iterator[Flag]:
    at, piped = 0, False
    while at < len(found):
        word, at = found[at], at + 1
        piped = word == "|" or piped and word != END  # into tee and its like
        if piped or not _FLAG.fullmatch(word):
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and at < len(found) and not _FLAG.fullmatch(found[at]) and not _ends(found[at]):
            values.append(found[at])
            at += 1
        yield Flag(name.lstrip("-").replace("-", "_"), tuple(values), name)


def _ends(word: str) -> bool:
    """What no value is: the end of a command, a script's name, the rest of a line."""
    return word in (END, ")", "(", ";", "&", "&&", "|", "||", "\\", "}", "{", "then", "fi", "do", "done") or word.startswith(
        ("$@", '"$@"', ">", "2>", "1>", "<")) or bool(re.search(r"\.(py|sh)$", word))


LAUNCHERS = {"nnodes": "nodes", "num_machines": "nodes", "num_nodes": "nodes", "nproc_per_node": "procs_per_node",
             "num_gpus": "procs_per_node", "num_processes": "processes"}
"""Of torchrun, deepspeed and accelerate; before them, of the job that they run in:"""
OF_JOB = {"nodes": "nodes", "N": "nodes", "ntasks_per_node": "procs_per_node", "gpus_per_node": "procs_per_node"}
OF_LAUNCHER = frozenset([*LAUNCHERS, *OF_JOB, *"""
    node_rank master_addr master_port rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts local_ranks_filter
    tee log_dir redirects role monitor_interval start_method run_path no_python module machine_rank main_process_ip
    main_process_port hostfile include exclude launcher launcher_args ssh_port config_file job_name gres cpus_per_task partition
    time account qos output error constraint mem exclusive export kill_on_bad_exit cpu_bind ntasks signal mail_type hint
    no_requeue requeue dependency nodelist use_env node_list comment wait jobid label array gpus_per_task container_image
    container_mounts container_name container_workdir no_container_mount_home mpi
""".split()])


def of_program(found: Iterable[Flag]) -> list[Flag]:
    """Without those of launchers, and of `mkdir -p` and its like: no engine has options of one letter."""
    return [flag for flag in found if flag.name not in OF_LAUNCHER and len(flag.name) > 1]


def launched(found: Iterable[Flag], text: str = "") -> Started:
    """What torchrun and its like are told; where they are told nothing, what a job script's own #SBATCH lines ask for."""
    own = flags("\n".join(re.findall(r"^#SBATCH\s+(.*)$", text, re.M)))
    asked: dict[str, int] = {}
    for given, known in ((own, OF_JOB), (found, LAUNCHERS)):
        for flag in given:
            if flag.name in known and flag.values and re.fullmatch(r"0*[1-9]\d{0,6}", flag.values[0]):
                asked[known[flag.name]] = int(flag.values[0])
            elif known.get(flag.name) == "procs_per_node":
                asked.pop("procs_per_node", None)  # as many as there are GPUs, and not a job's tasks
    return Started(asked.get("nodes"), asked.get("procs_per_node"), asked.get("processes"))


def one(flag: Flag, where: str) -> str:
    """Its value, which must be there and known."""
    if not flag.values:
        raise BadInput(f"{where}: {flag.written} without a value")
    if "$" in flag.values[0]:
        raise BadInput(f"{where}: {flag.written} {flag.values[0]}: the file does not set it; put the number in its place")
    return flag.values[0]
