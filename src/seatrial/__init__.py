"""seatrial: sea trials for large training runs. Forecast every 3D-parallel layout, prove the best ones, keep the log.

    from seatrial import api            plan, forecast, explain, calibrate, tune, logbook, report, with plain values
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`seatrial.api` is there after `import seatrial`, and loaded when it is first asked for."""
    if name == "api":
        import importlib

        return importlib.import_module("seatrial.api")
    raise AttributeError(f"module 'seatrial' has no attribute {name!r}")
