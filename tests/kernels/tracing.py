"""What a traced program consists of."""


def primitives(program) -> set[str]:
    """The names of all primitives in a traced program, and in those within it."""
    found = set()
    for equation in program.eqns:
        found.add(equation.primitive.name)
        for value in equation.params.values():
            for part in value if isinstance(value, tuple) else (value,):
                inner = getattr(part, "jaxpr", part)
                found |= primitives(inner) if hasattr(inner, "eqns") else set()
    return found
