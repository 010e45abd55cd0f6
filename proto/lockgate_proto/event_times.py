"""What the numbers of an EventTime stand for."""

DEFAULT_MAX_AHEAD_MS = 24 * 3600 * 1000  # where max_ahead_ms is 0
ANY_TIME_AHEAD = -1  # the max_ahead_ms of event time that no clock bounds
