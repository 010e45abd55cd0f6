"""`lockgate drill`: kills parts of a cluster under load and accounts for every record."""

from lockgate.drill.arena import DrillError
from lockgate.drill.model import Kill, RecordCheck, Report, Target
from lockgate.drill.run import DrillOptions, drill, run_drill

__all__ = ["DrillError", "DrillOptions", "Kill", "RecordCheck", "Report", "Target", "drill", "run_drill"]
