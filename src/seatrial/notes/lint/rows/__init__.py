"""A row by itself and among its like: its layout, its state, its memory and speed, rows that were copied or shifted."""
