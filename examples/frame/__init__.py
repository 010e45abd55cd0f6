"""What every runnable example has in common: its description, and how it is run, hurt and checked."""

from examples.frame.example import Example, NotHere, Place, Scene, Step, Wrong

__all__ = ["Example", "NotHere", "Place", "Scene", "Step", "Wrong"]
