"""What every program that is measured does with the garbage collector once it is warm, whichever side it is on.

The same as `perdure serve` does, and as `docs/howto/deploy.md` tells programs that embed the engine. The peers'
environments hold nothing of ours, so the standard library must do here.
"""

import gc


def settle() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
