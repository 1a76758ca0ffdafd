# Warns before the module's file is removed while a server needs it. Fails never: the removal goes on. scripts/dist makes
# it a script of each package. DPKG_ROOT is empty but in tests.
module="$DPKG_ROOT/{module}"
running=$(grep -ls "$module" /proc/[0-9]*/maps | grep -o '[0-9][0-9]*' | tr '\n' ' ')
configured=$(grep -rlsE '^[[:space:]]*loadmodule[[:space:]].*/libredis_ratelimit[.]so' \
    "$DPKG_ROOT/etc/redis" "$DPKG_ROOT/etc/valkey" "$DPKG_ROOT/etc/redis.conf" | tr '\n' ' ')
if [ -n "$running$configured" ]; then
    echo "WARNING: servers that need $module do not start again without it." >&2
    [ -z "$running" ] || echo "  running, by process id: $running" >&2
    [ -z "$configured" ] || echo "  loadmodule stands in: $configured" >&2
    echo "  INSTALL.md, \"Remove the module\", has the steps." >&2
fi
exit 0
