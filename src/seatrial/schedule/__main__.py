from __future__ import annotations

import sys

from seatrial.schedule import picture, walk

kind, *numbers = sys.argv[1:] or ["1f1b", "4", "8"]
pp, microbatches, virtual = (int(n) for n in [*numbers, "1"][:3])
timeline = walk(kind, pp=pp, microbatches=microbatches, virtual=virtual, forward_s=1.0, backward_s=2.0)
print(picture(timeline))
print(f"{timeline.total_s:g} s with F 1 s and B 2 s a stage, {max(timeline.wait_s):g} s of it the bubble")
