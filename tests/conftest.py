"""Give the tests a numba cache of their own for every state of the files that hold kernels.

Numba recompiles a kernel when its own file changes, but not when a kernel it calls from another file does.
"""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (path.read_bytes() for path in sorted((ROOT / "src" / "percolab").rglob("*.py")))
STATE = hashlib.sha256(b"".join(text for text in SOURCES if b"numba" in text or b"@kernel" in text)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "numba" / STATE)
