package ratelimit

import "container/list"

// lru keeps a number of values. A new one evicts the least recently used. It is not safe for concurrent use.
type lru[V any] struct {
	most  int
	evict func(V) // called with what a new value evicts
	order *list.List
	found map[string]*list.Element
}

type entry[V any] struct {
	key   string
	value V
}

func newLRU[V any](most int, evict func(V)) *lru[V] {
	return &lru[V]{most, evict, list.New(), make(map[string]*list.Element)}
}

func (l *lru[V]) get(key string) (value V, found bool) {
	element, found := l.found[key]
	if !found {
		return value, false
	}
	l.order.MoveToFront(element)
	return element.Value.(entry[V]).value, true
}

func (l *lru[V]) put(key string, value V) {
	l.drop(key)
	l.found[key] = l.order.PushFront(entry[V]{key, value})
	if len(l.found) > l.most {
		oldest := l.order.Back().Value.(entry[V])
		l.evict(oldest.value)
		l.drop(oldest.key)
	}
}

func (l *lru[V]) drop(key string) {
	if element, found := l.found[key]; found {
		l.order.Remove(element)
		delete(l.found, key)
	}
}
