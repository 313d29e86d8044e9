"""Headings that look like a quantity of a training run and are one of something else: of inference, of a part of a step, of
files, links, hosts, or what was allowed and not what was used.

    is_elsewhere("Decode tok/s")          True
    is_elsewhere("Step time (excl. eval)")    False: what is left out is no part of it
"""
from __future__ import annotations

import re
from functools import lru_cache

_PHASES = (r"inference|decod(?:e|ing)|prefill|serving|rollouts?|eval(?:s|uation)?|validation|tokeni[sz](?:er|ation)|prompts?|"
           r"completions?|detokeni\w+|generated|speculative|spec decoding|draft|judge|reward|max new tokens|"
           r"generation (?:throughput|speed|rate|tok\w*|tps)|output tok\w*|input tok\w*|requests?|"
           r"queries|per user|concurrent")  # fmt: skip
"""What is no training."""
_PARTS = (r"data ?load(?:er|ing)?|data (?:time|wait)|load(?:ing)? time|forward|backward|fwd|bwd|all ?reduce|all ?gather|"
          r"reduce ?scatter|all ?to ?all|nccl|comm(?:s|unication)?|exposed|gradient sync|grad sync|ckpt save|checkpoint(?:s)? ?"
          r"(?:save|load|write|size|time|interval|every)|ckpt (?:size|time|load)|(?:save|load|write|restore)(?: the)? "
          r"(?:ckpt|checkpoint)s?|startup|compil(?:e|ation) time|first step|first token|ttft|tpot|itl|queue|"
          r"(?<!per )opt(?:im|imizer)? (?:step|update)(?! ?s\b) ?(?:time|ms|s|sec)?")  # fmt: skip
"""What is a part of a step or of a run."""
_THINGS = (r"(?<!per )host|cpu (?:mem\w*|ram|cores?|util\w*)|kv cache|(?:dataset|corpus) size|disk|storage|nvme|"
           r"offload(?:ed|ing)?|"
           r"band ?width|busbw|algbw|gbps|gbit|interconnect|network|nic|infiniband|packets?|http|capacity|data ?sheet|"
           r"spec sheet|nominal|theoretical|tdp|cap|limit|lora|adapter|embedding params|non embedding|trainable|temperature|"
           r"backend|idle|spare")  # fmt: skip
"""What belongs to a machine, or to a part of the model."""
_SPREADS = r"std|stddev|stdev|std dev|variance|jitter|cv|saved|savings?|interval|every|warm ?up|resumed?|from step|between"
_COUNTED = r"steps? per epoch|epochs? steps?|per epoch|mtbf|mttr|layers? per|size divisible|critical|dropped|unique"
"""What says how much a figure varies, or counts what is no step, token or hour of a run."""
_ELSEWHERE = re.compile(rf"\b(?:{_PHASES}|{_PARTS}|{_THINGS}|{_SPREADS}|{_COUNTED})\b")
_BUT_FOR = re.compile(r"(?:\b(?:incl|including|excl|excluding|with|without|w per o|w o|w|no|not|non|plus|minus|and|before|"
                      r"after|vs)|(?:%|\bpercent|\bfraction|\bshare) of)\s*$")  # fmt: skip
"""Before one of these words: it is named for what is counted in or left out."""


@lru_cache(maxsize=8192)
def is_elsewhere(words: str) -> bool:
    """Of a heading in plain words (see `normal`)."""
    return any(not _BUT_FOR.search(words[: match.start()]) for match in _ELSEWHERE.finditer(words))
