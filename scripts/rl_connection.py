"""How rl-top, rl-left and rl-policies reach a server: redis-py, and options like redis-cli's."""

import os
import sys
from pathlib import Path

# Where scripts/fetch.py puts the libraries. An installed program uses those of the system.
sys.path += [str(Path(__file__).resolve().parent.parent / ".cache" / name) for name in ("python", "rich")]

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    sys.exit(f"{Path(sys.argv[0]).name} needs redis-py: apt install python3-redis, or pip install redis")


def add_options(parser):
    parser.add_argument("--help", action="help", help="show this")
    parser.add_argument("--user", help="without it, the default user")
    parser.add_argument("-a", "--password", default=os.environ.get("REDISCLI_AUTH"), help="REDISCLI_AUTH is safer")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--cacert", help="the authority that signed the server's certificate")
    parser.add_argument("--insecure", action="store_true", help="accept any certificate")


def add_address(parser):
    parser.add_argument("-h", "--host", default="127.0.0.1")
    parser.add_argument("-p", "--port", type=int, default=6379)


def connect(options, host, port, db=0, timeout_s=5):
    """A client that tries once, so that its caller learns at once that the server is gone."""
    tls = {"ssl": True, "ssl_ca_certs": options.cacert, "ssl_cert_reqs": "none" if options.insecure else "required"}
    return redis.Redis(
        host=host,
        port=port,
        db=db,
        username=options.user,
        password=options.password,
        socket_timeout=timeout_s,
        socket_connect_timeout=5,
        retry=Retry(NoBackoff(), 0),
        **(tls if options.tls else {}),
    )
