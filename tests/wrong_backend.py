"""``pto-gpu`` with a backend under test that is wrong in about half of the blocks; run as a script.

``DIE_AFTER`` in the environment: the process of rank 1 kills itself after so many waves, the first time it runs.
"""

import os
import signal

from pto_gpu import cli
from pto_gpu.campaign import run
from pto_gpu.campaign.journal import Journal

real_execute, real_add = run.backend_execute, Journal.add


def wrong_execute(options):
    execute = real_execute(options)

    def run_wrong(call):
        execute(call)
        if call.tiles["src0"].data[0, 0, 0] > 0:
            call.tiles["dst"].data[5, 0, 0] = 99

    return run_wrong


def add_and_die(journal, campaign, wave, seconds):
    real_add(journal, campaign, wave, seconds)
    left = int(os.environ["DIE_AFTER"]) - 1
    os.environ["DIE_AFTER"] = str(left)
    if left == 0 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    run.backend_execute = wrong_execute
    if "DIE_AFTER" in os.environ:
        Journal.add = add_and_die
    cli.main()
