"""Tools for the development of jdfl."""
