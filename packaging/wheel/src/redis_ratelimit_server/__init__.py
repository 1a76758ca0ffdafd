"""The module redis-ratelimit, and a program that starts a Valkey server with it: `redis-ratelimit-server --help`."""
