"""The task manager process: control stream, deployments, and one loop thread per subtask."""
