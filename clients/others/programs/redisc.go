package main

import (
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
)

const timeout = 100 * time.Millisecond

var cluster = redisc.Cluster{
	StartupNodes: []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"},
	DialOptions: []redis.DialOption{
		redis.DialConnectTimeout(timeout), redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout),
	},
}

func check(key string, rules ...string) ([]int64, error) {
	conn, err := redisc.RetryConn(cluster.Get(), 3, timeout) // Do follows MOVED
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return redis.Int64s(conn.Do("RL.CHECK", redis.Args{key}.AddFlat(rules)...))
}

func main() {
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		reply, err := check(key, "5/h")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply)
	}
}
