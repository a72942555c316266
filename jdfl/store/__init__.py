"""What a run leaves on the disk while it goes on: a journal, snapshots, a lease on its folder, and a manifest."""
