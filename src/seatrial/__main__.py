"""`python -m seatrial` is the same as `seatrial`."""
import sys

from seatrial.cli import main

sys.exit(main())
