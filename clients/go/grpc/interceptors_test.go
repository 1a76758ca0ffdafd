package ratelimitgrpc

import (
	"context"
	"errors"
	"net"
	"testing"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limiter(t *testing.T) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.InProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// client asks a health service behind the interceptors.
func client(t *testing.T, l *ratelimit.Limiter, options Options) grpc_health_v1.HealthClient {
	t.Helper()
	limits, err := New(l, options)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return grpc_health_v1.NewHealthClient(connection)
}

func TestADeniedCallIsResourceExhaustedWithRetryInfo(t *testing.T) {
	asking := client(t, limiter(t), Options{Rules: []string{"1/d,name=day"}})
	var told metadata.MD
	if _, err := asking.Check(context.Background(), nil, grpc.Header(&told)); err != nil || told.Get("ratelimit")[0] == "" {
		t.Error(err, told)
	}
	_, err := asking.Check(context.Background(), nil)
	found := status.Convert(err)
	retry, ok := found.Details()[0].(*errdetails.RetryInfo)
	if found.Code() != codes.ResourceExhausted || !ok || retry.RetryDelay.AsDuration() <= 0 {
		t.Error(found)
	}
}

func TestAStreamCountsWhenItBegins(t *testing.T) {
	asking := client(t, limiter(t), Options{Rules: []string{"1/d"}})
	for _, expected := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		stream, err := asking.Watch(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != expected {
			t.Error(err, expected)
		}
	}
}

func TestOnlyFailedCallsCount(t *testing.T) {
	l := limiter(t)
	key := func(context.Context, string) string { return "k" }
	asking := client(t, l, Options{Rules: []string{"5/d"}, Key: key, Count: ratelimit.CountFailed})
	_, _ = asking.Check(context.Background(), nil)
	_, _ = asking.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: "unknown"})
	if reply, err := l.Peek(context.Background(), "k", []string{"5/d"}); err != nil || reply.Remaining != 4 {
		t.Error(reply, err)
	}
}

func TestWithoutADecisionACallIsUnavailable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	l, err := ratelimit.FromURL("redis://"+listener.Addr().String(), ratelimit.Options{OnOutage: func(ratelimit.OutageEvent) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err = client(t, l, Options{Rules: []string{"5/s"}}).Check(context.Background(), nil); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	wrong := func(context.Context, string) ([]ratelimit.Limit, error) { return nil, errors.New("no user") }
	if _, err = client(t, l, Options{Limits: wrong}).Check(context.Background(), nil); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	for _, options := range []Options{{}, {Rules: []string{"nonsense"}}, {Rules: []string{"slots:1"}}} {
		if _, err := New(l, options); !errors.Is(err, ratelimit.ErrMisuse) {
			t.Error(options, err)
		}
	}
}
