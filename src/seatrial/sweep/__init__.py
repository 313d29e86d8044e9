"""Many trials from one file: listed, run, measured, and resumed after anything."""
