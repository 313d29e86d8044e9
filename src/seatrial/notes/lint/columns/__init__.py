"""Columns that follow from each other, and the one cell whose change makes a row agree.

`relations` is what the rows of a table keep to: said by RELATIONS, by a heading (`named`), found in figures (`discover`).
`repairs` asks each row that breaks one: `broken`, `mending` with `measured`, `chosen` and `exchanged` for the changes that
would do, `points`, `peers`, `copied`, `habits` for what speaks for each, `verdict` for what is said. The others are laws of
one kind of column: sums, changes in percent, counts in step, matrices, what hardly differs.
"""
