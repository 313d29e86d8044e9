"""A training script on one rank of a group that is not there: what its engine refuses, it refuses here.

    PYTHON fake_group.py FOLDER         in it a folder for each trial, with the script's files and asked.json

Each trial is a fork of this process, which has imported the script once; process groups are torch's fake ones, of any size.
What the script says that it built is held against what was asked; of a pipeline the first and the last rank are tried.
"""
import importlib
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception)\b|\S+: error: ).*", re.M)


def without_others() -> None:
    """Every group is a fake one, whatever backend is asked for; collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    init, new = dist.init_process_group, dist.new_group

    def begin(*_: Any, **__: Any) -> None:
        init("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

    for module in (dist, dist.distributed_c10d):
        module.init_process_group = begin
        module.new_group = lambda *args, **more: new(*args, **{**more, "backend": "fake"})


def build(folder: Path, asked: dict[str, Any], script: Any, rank: int) -> str:
    """Why it does not build; the last line of its log."""
    log = folder / f"rank{rank}.log"
    pid = os.fork()
    if not pid:
        out = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(folder)
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(asked["world"]), "LOCAL_RANK": str(rank),
                           "LOCAL_WORLD_SIZE": str(asked["world"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
        # Megatron's schedules look at their micro-batches when they begin. Others have looked at all when they are built, and
        # the futures of DDP, the shapes that DeepSpeed's stages ask each other for, need somebody there.
        sys.argv = [*asked["argv"], "--device", "cpu", "--steps", "1" if "megatron.core" in sys.modules else "0"]
        try:
            script.main()
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(1 if end.code else 0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    text = log.read_text(errors="replace")
    if status:
        return (ERROR.findall(text) or [text[-200:] or f"status {status}"])[-1]
    said = re.search(r"^seatrial-applied (.*)$", text, re.M)
    return "" if said is None else other(json.loads(said[1]), asked["fields"])


def other(built: dict[str, Any], asked: dict[str, Any]) -> str:
    return ", ".join(f"it builds {name} {value}, asked {asked[name]}" for name, value in built.items()
                     if asked.get(name) is not None and value != asked[name])


def main() -> None:
    folders = sorted((path.parent for path in Path(sys.argv[1]).glob("*/asked.json")), key=lambda path: int(path.name))
    sys.argv.append("cpu")
    script = None
    for folder in folders:
        asked = json.loads((folder / "asked.json").read_text())
        if script is None:
            sys.path.insert(0, str(folder))
            without_others()
            script = importlib.import_module(Path(asked["argv"][0]).stem)
        ranks = dict.fromkeys((asked["speaks"], *((0, asked["world"] - 1) if asked["fields"]["pp"] > 1 else ())))
        refused = next(filter(None, (build(folder, asked, script, rank) for rank in ranks)), "")
        print(json.dumps({"trial": int(folder.name), "refused": refused}), flush=True)


if __name__ == "__main__":
    main()
