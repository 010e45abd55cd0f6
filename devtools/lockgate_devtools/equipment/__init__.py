"""External programs used by demo, drill and tests: container engines, compose clusters, broken links, databases."""
