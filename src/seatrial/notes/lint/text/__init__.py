"""Sentences: the settings that they give (`prose`), which rows deny (`denied`), what they say of rows and of themselves."""
