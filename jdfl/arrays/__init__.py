"""What is done to the nodes' arrays: sums and norms over nodes, their s largest entries, and how many there are."""
