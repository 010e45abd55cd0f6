"""The pipeline builder: `Job`, the streams it makes, and the errors of their misuse."""

from __future__ import annotations

from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.job import Job
from lockgate.pipeline.restart import Restart
from lockgate.pipeline.stream import KeyedStream, Stream
from lockgate.pipeline.writing import Sink

__all__ = ["Job", "KeyedStream", "PipelineError", "Restart", "Sink", "Stream"]
