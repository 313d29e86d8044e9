"""python -m seatrial.engine RUN.json: one process of a run, under any launcher that says which rank it is."""
import sys

from seatrial.engine.loop import main

sys.exit(main(sys.argv[1:]))
