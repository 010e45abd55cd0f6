"""How the JVMs that tests start are set."""

FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"
"""A task manager's JVM is ready after 6 s of processor time in place of 11."""
