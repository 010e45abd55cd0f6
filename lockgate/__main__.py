"""`python -m lockgate`."""

from lockgate.cli import main

if __name__ == "__main__":
    main()
