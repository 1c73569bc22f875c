"""When Python's garbage collector looks at what a process holds."""

import gc

# A page makes a few thousand objects, of which next to none are left for the collector: with
# Python's own 700 it would look at them several times while the page is made.
_LOOK_AFTER = 10_000


def settle() -> None:
    """Leave everything loaded by now to itself, and look less often at what is made later.

    Before a fork: the first collection in a process would copy all the memory that it shares.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_LOOK_AFTER)
