package ratelimit

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

const slots = 16384

// servers are the nodes: one, or those of a cluster, by its map. go-redis can follow MOVED only if it may also send a
// check again, so the limiter itself reads the map, before each probe and after MOVED.
type servers struct {
	l         *Limiter
	options   *redis.Options // of every node
	isCluster bool
	seeds     []string // addresses to begin with
	one       *node    // without a cluster

	at      atomic.Pointer[slotMap]
	reading singleflight.Group
	mu      sync.Mutex
	known   map[string]*node
}

type slotMap struct {
	owners [slots]*node
	since  time.Duration // when it was read
}

// Slots without an owner may get one: then a map as old as this is read again.
const mapOld = time.Second

// find is the node of a key.
func (s *servers) find(ctx context.Context, key string) (*node, error) {
	err := ctx.Err()
	if s.one != nil {
		return s.one, err
	}
	seen, at := s.at.Load(), slot(key)
	if err == nil && (seen == nil || seen.owners[at] == nil && clock()-seen.since > mapOld) {
		err = s.read(ctx, seen)
	}
	if err != nil {
		return nil, err
	}
	if found := s.at.Load().owners[at]; found != nil {
		return found, nil
	}
	return nil, &OutageError{Err: errors.New("CLUSTERDOWN: no node serves the key's slot")}
}

// follow is the node that MOVED or ASK names.
func (s *servers) follow(ctx context.Context, from *node, reply error) *node {
	if !says(reply, "ASK ") {
		_ = s.read(ctx, s.at.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	words := strings.Fields(reply.Error())
	return s.named(from.name, words[len(words)-1])
}

// named is the node of an address. An empty host is that of the node that said so. The lock is held.
func (s *servers) named(from, address string) *node {
	if host, _, err := net.SplitHostPort(from); err == nil && strings.HasPrefix(address, ":") {
		address = net.JoinHostPort(host, address[1:])
	}
	if s.known[address] == nil {
		n := &node{l: s.l, name: address}
		n.current.Store(n.begin())
		s.known[address] = n
	}
	return s.known[address]
}

// read reads the map, unless it is another one than `seen` by now. All who want it at once read it once.
func (s *servers) read(ctx context.Context, seen *slotMap) error {
	done := s.reading.DoChan("", func() (any, error) {
		if s.at.Load() != seen {
			return nil, nil
		}
		return nil, s.ask()
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask asks the nodes that answer, one after the other: one that is late goes away. If none of the map answers, it asks
// at the addresses to begin with.
func (s *servers) ask() error {
	err := error(&OutageError{Err: errors.New("no node of the cluster says which node serves which slot")})
	for range 2 {
		for _, n := range s.nodes() {
			cmd := redis.NewClusterSlotsCmd(s.l.ctx, "CLUSTER", "SLOTS")
			if failed := n.current.Load().send(s.l.ctx, cmd, true); failed != nil {
				err = failed
			} else if len(cmd.Val()) > 0 {
				s.take(n, cmd.Val())
				return nil
			}
		}
		s.mu.Lock()
		for _, address := range s.seeds {
			s.named("", address)
		}
		s.mu.Unlock()
	}
	return err
}

// take takes a map, and forgets the nodes that are not in it.
func (s *servers) take(from *node, found []redis.ClusterSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, named := &slotMap{since: clock()}, make(map[*node]bool)
	for _, part := range found {
		if len(part.Nodes) > 0 {
			n := s.named(from.name, part.Nodes[0].Addr)
			named[n] = true
			for at := max(0, part.Start); at <= min(part.End, slots-1); at++ {
				now.owners[at] = n
			}
		}
	}
	for address, n := range s.known {
		if !named[n] {
			delete(s.known, address)
			n.forgotten.Store(true)
			n.current.Load().closeLater()
		}
	}
	s.at.Store(now)
}

// nodes are those that are known now.
func (s *servers) nodes() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.known))
}

// slot is the one of a key: of its part in braces, if it has one.
func slot(key string) uint16 {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16 // CRC-16/XMODEM
	for at := range len(key) {
		crc ^= uint16(key[at]) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
	}
	return crc % slots
}
