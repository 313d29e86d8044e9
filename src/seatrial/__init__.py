"""seatrial: sea trials for large training runs. Forecast every 3D-parallel layout, prove the best ones, keep the log."""

__version__ = "0.1.0"
