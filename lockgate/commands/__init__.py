"""The commands, one module for each kind. Heavy imports happen inside the functions."""
