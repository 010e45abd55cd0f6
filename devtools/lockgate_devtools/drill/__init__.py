"""`lockgate drill`: kills parts of a cluster under load and accounts for every record."""

from lockgate_devtools.drill.arena import DrillError
from lockgate_devtools.drill.model import Kill, RecordCheck, Report, Target
from lockgate_devtools.drill.run import DrillOptions, drill, run_drill
from lockgate_devtools.drill.tally import Tally

__all__ = ["DrillError", "DrillOptions", "Kill", "RecordCheck", "Report", "Tally", "Target", "drill", "run_drill"]
