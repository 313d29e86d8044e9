"""python -m seatrial.engine RUN.json: one process of a run, under any launcher that says which rank it is."""
import sys

from seatrial.engine import bytecode

bytecode.keep()

from seatrial.engine.loop import main  # noqa: E402 - after it

sys.exit(main(sys.argv[1:]))
