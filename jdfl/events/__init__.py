"""No common clock: asynchronous methods, whose events are executed in waves as if one after another."""
