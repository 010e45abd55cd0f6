"""Records, barriers and ends of input between subtasks: by reference in one process, over gRPC between two."""
