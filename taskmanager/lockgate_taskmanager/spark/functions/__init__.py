"""Functions called with each record, or with tables of records, in the task manager's own process."""
