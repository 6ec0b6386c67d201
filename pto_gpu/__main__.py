"""``python -m pto_gpu``: the command line, for launchers that start modules."""

from pto_gpu.cli import main

if __name__ == "__main__":
    main()
