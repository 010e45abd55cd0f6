"""What every runnable example has in common: its description, and how it is run, hurt and checked."""

from examples.frame.example import Example, Place, Step

__all__ = ["Example", "Place", "Step"]
