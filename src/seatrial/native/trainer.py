"""Options of Hugging Face's Trainer and its scripts: those of a command, or of the JSON file that such a script takes.

    options = Options({"per_device_train_batch_size": "2", "gradient_checkpointing": "True"}, "train.sh")
    options.mbs, options.steps, options.recompute           2, None, "full"
    options.left()                                          what is not understood
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from seatrial.native.told import Told

SEQUENCE = ("block_size", "max_seq_length", "max_length", "model_max_length")
NEUTRAL = re.compile(r"""(?:
    learning_rate|lr_|warmup|weight_decay|adam_|max_grad_norm|num_train_epochs|max_steps|seed|output|overwrite|logging|save|eval
    |report_to|run_name|dataset|data_|train_file|validation_file|tokenizer|model_name|config_name|do_|ddp_|preprocessing|local_rank
    |per_device_eval|trust_remote_code|use_fast|cache_dir|push_to_hub|hub_|load_best|metric|remove_unused|disable_tqdm|log_level
    |max_train_samples|max_eval_samples|low_cpu_mem_usage|tf32|resume|streaming|keep_linebreaks|validation_split
)""", re.X)
"""What changes neither batch nor layout."""
ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused")


class Options(Told):
    def __init__(self, values: Mapping[str, Any], where: str):
        super().__init__(values, where)
        self.mbs, self.steps = self.whole("per_device_train_batch_size"), self.whole("gradient_accumulation_steps")
        self.seq = self.whole(*SEQUENCE)
        self.recompute = "full" if self.on("gradient_checkpointing") else "none"
        self.compiled = self.on("torch_compile")
        self.half = next((name for name in ("bf16", "fp16") if self.on(name)), None)
        self.neutral(("fp16", *(("optim",) if values.get("optim") in ADAM else ())))

    def left(self) -> list[str]:
        return [name for name in super().left() if not NEUTRAL.match(name)]
