"""The tables and figures of the papers, one script each."""
