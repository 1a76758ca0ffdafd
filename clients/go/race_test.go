//go:build race

package ratelimit

func init() { race = true }
