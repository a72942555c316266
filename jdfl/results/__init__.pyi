from .folder import Run, read_run

__all__ = ["Run", "read_run"]
