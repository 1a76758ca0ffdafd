package main

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"
)

const timeout = 100 * time.Millisecond

var pool = &redis.Pool{
	MaxIdle:     10,
	IdleTimeout: time.Minute,
	Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", "127.0.0.1:6379",
			redis.DialConnectTimeout(timeout), redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
	},
}

// check returns the HTTP status and the seconds for Retry-After.
func check(key string, rules ...string) (int, int64, error) {
	conn := pool.Get()
	defer conn.Close()
	reply, err := redis.Int64s(conn.Do("RL.CHECK", redis.Args{key}.AddFlat(rules)...))
	var wrong redis.Error
	if errors.As(err, &wrong) {
		return 500, 0, err
	}
	if err != nil {
		log.Print("not limited: ", err)
		return 200, 0, nil
	}
	return []int{200, 429, 403}[reply[0]], (reply[3] + 999) / 1000, nil
}

func main() {
	status, retryAfter, err := check("login:42", "5/h")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status, retryAfter)
}
