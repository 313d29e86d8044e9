"""The engine: real 3D-parallel training steps. torch and the standard library only; `run.json` in, `events.jsonl` out."""
