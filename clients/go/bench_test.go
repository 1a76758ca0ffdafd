package ratelimit

import "testing"

// mostAllocations are those of a check, of which go-redis makes nine.
const mostAllocations = 14

// race tells whether the race detector runs, which allocates too.
var race bool

func TestACheckAllocatesLittle(t *testing.T) {
	l := limiter(t, Options{})
	rules := []string{"bucket:1000000/s"}
	found := testing.AllocsPerRun(1000, func() {
		if _, err := l.Check(background, t.Name(), rules); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%v allocations a check", found)
	if !race && found > mostAllocations {
		t.Errorf("%v allocations a check, expected at most %v", found, mostAllocations)
	}
}

func BenchmarkCheck(b *testing.B) {
	l := limiter(b, Options{})
	rules := []string{"bucket:100000000/s"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Check(background, "bench", rules); err != nil {
			b.Fatal(err)
		}
	}
}
