"""Tools for those who work on jdfl."""
