"""Operations on the nodes' arrays: sums and norms, projection onto the s largest entries, and sparse rows."""
