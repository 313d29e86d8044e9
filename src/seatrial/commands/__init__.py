"""One module a command (or a family of them); each has `register(app)`, and `cli.py` finds them by being here."""
