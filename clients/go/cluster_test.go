package ratelimit

import (
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestASlotThatGetsAnOwnerIsFound(t *testing.T) {
	_, bus, _ := net.SplitHostPort(dead(t))
	process, at := serve("valkey-9.1", "--loadmodule", module(), "--cluster-enabled", "yes", "--cluster-port", bus,
		"--cluster-require-full-coverage", "no", "--cluster-config-file", filepath.Join(t.TempDir(), "nodes.conf"))
	t.Cleanup(func() { stop(process) })
	server := redis.NewClient(&redis.Options{Addr: at})
	defer server.Close()
	l, err := FromURL("redis+cluster://"+at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var keys [2]string // of each half of the slots
	for n := 0; keys[0] == "" || keys[1] == ""; n++ {
		key := strconv.Itoa(n)
		keys[slot(key)*2/slots] = key
	}
	check := func(key string) error {
		_, err := l.Check(background, key, []string{"1000/d"})
		return err
	}
	for half, key := range keys {
		if err := check(key); !IsOutage(err) {
			t.Fatal(err)
		}
		if err := server.ClusterAddSlotsRange(background, half*slots/2, (half+1)*slots/2-1).Err(); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return check(key) == nil })
	}
}
