//go:build service

package main

import _ "github.com/envoyproxy/ratelimit/src/service_cmd/runner" // go.mod keeps what build.py builds
