"""Scripts whose trace is compared: what each machine decides, in words, see docs/traces.md."""
