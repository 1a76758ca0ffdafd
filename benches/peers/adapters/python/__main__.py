"""An adapter for each peer that Python speaks with: `python3 adapters/python NAME redis://…`."""

import limiters
import servers
from speak import speak

speak(limiters.MAKERS | servers.MAKERS)
