"""HTTP: a server in a thread of its process, and who calls it. What it serves is an ASGI app of another room."""
