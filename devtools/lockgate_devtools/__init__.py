"""Tools for trying and testing Lockgate: a cluster on one machine, the drill, the demo, test equipment."""
