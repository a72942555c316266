"""The foundation of all packages: settings and their checks, structures, keys and streams, and files."""
