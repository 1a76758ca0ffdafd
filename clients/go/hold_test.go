package ratelimit

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestCloseGivesUpWhatIsNotSettled(t *testing.T) {
	process, at := serve("valkey-9.1", "--loadmodule", module())
	t.Cleanup(func() { stop(process) })
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	l, err := FromURL("redis://"+at, Options{Timeout: 5 * time.Second, Logger: logger, OnOutage: func(OutageEvent) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var holds [3]*Hold
	for n := range holds {
		if holds[n], err = l.Hold(background, "k", []string{"slots:3"}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	stop(process)
	_, _ = holds[0].Close(), holds[1].Close()
	if l.Unsettled() != 0 {
		t.Error(log.String())
	}
	_ = l.Close()
	_, _ = holds[2].Close(), l.Close()
	for _, hold := range holds {
		if l.Unsettled() != 3 || strings.Count(log.String(), hold.ID) != 1 {
			t.Error(l.Unsettled(), log.String())
		}
	}
}
