"""The papers' tables and figures, one script each."""
