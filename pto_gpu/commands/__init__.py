"""The commands of ``pto-gpu``, one module each; heavy imports are inside the functions."""
