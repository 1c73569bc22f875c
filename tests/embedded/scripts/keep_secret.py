"""keep_secret.py DATA_DIR ROUNDS: prints the folder's secrets 0, 1, … as it sees them."""

import os
import secrets
import sys
from pathlib import Path

from refine.embedded import kept_secret

os.umask(0)
for number in range(int(sys.argv[2])):
    secret = kept_secret(Path(sys.argv[1]), f"secret-{number}", lambda: secrets.token_hex(16))
    sys.stdout.write(f"{secret}\n")
