"""What torchtitan itself says of many configurations: python -P validate/torchtitan.py FOLDER

Its parser, then its Trainer on a fake process group of the trial's size, as the first rank of every stage: meshes, batch,
model, stages, schedule. Then a step; of pipelines and DDP, whose messages a fake group cannot give, the forward pass alone.
Each in a process of its own, forked once all is imported.
"""
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "src" / "seatrial" / "engines" / "drivers"))
import run_torchtitan

run_torchtitan.on_the_cpu()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.train import Trainer  # noqa: E402


def validate(folder: Path, world: int, rank: int) -> None:
    os.chdir(folder)
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    sys.path.insert(0, str(folder))
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    trainer = Trainer(ConfigManager().parse_args(["--job.config_file", "torchtitan.toml"]))
    dims, batches = trainer.parallel_dims, trainer.batch_generator(trainer.dataloader)
    if not dims.pp_enabled and (dims.fsdp_enabled or not dims.dp_replicate_enabled):
        trainer.train_step(batches)
        return
    with trainer.train_context(), trainer.maybe_enable_amp:
        inputs, _, _, more = trainer.post_dataloading_process(*next(batches))
        if dims.pp_enabled:
            inputs = inputs[: trainer.job_config.parallelism.pipeline_parallel_microbatch_size]
        for part in trainer.model_parts:
            hidden = torch.zeros(inputs.shape[0], inputs.shape[1] // dims.tp, trainer.model_args.dim)
            part(inputs if part.tok_embeddings is not None else hidden, **more)


def forked(folder: Path, world: int, rank: int) -> str:
    """Why it is refused, or nothing."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        said = "ended without a word"
        try:
            validate(folder, world, rank)
            said = ""
        except BaseException as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said or (f"ended with status {status}" if status else "")


def main() -> None:
    torch.set_num_threads(1)
    for folder in sorted(Path(sys.argv[1]).iterdir(), key=lambda one: int(one.name)):
        asked = json.loads((folder / "asked.json").read_text())
        world, stages = asked["world"], asked["trial"]["pp"]
        refused = next((why for rank in range(0, world, world // stages) if (why := forked(folder, world, rank))), "")
        print(json.dumps({"trial": int(folder.name), "refused": refused}), flush=True)


if __name__ == "__main__":
    main()
