// Package ratelimitgrpc has interceptors that let the package ratelimit decide which calls of gRPC are served.
//
//	limits, err := ratelimitgrpc.New(limiter, ratelimitgrpc.Options{Rules: []string{"10/s"}})
//	if err != nil { ... }
//	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
//
// A denied call ends with RESOURCE_EXHAUSTED, a blocked one with PERMISSION_DENIED, one that nobody could decide with
// UNAVAILABLE, each with a RetryInfo if a wait helps. A stream counts when it begins.
package ratelimitgrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ratelimit "github.com/redis-ratelimit/redis-ratelimit/clients/go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Options are those of interceptors. They need Rules or Limits.
type Options struct {
	// Rules apply to each client.
	Rules []string
	// Key is the client's, by default "ip:" and the network of the connection's address.
	Key func(ctx context.Context, method string) string
	// Limits are the keys and rules of a call, instead of Key and Rules. Without any the call is served.
	Limits func(ctx context.Context, method string) ([]ratelimit.Limit, error)
	// Cost is what a call costs, 1 by default.
	Cost func(ctx context.Context, method string) ratelimit.Option
	// Count says which calls count. One that ends with an error has failed.
	Count ratelimit.Count
	// Headers are the metadata that tell clients their limits.
	Headers ratelimit.Headers
}

// Limits are interceptors.
type Limits struct {
	l *ratelimit.Limiter
	o Options
}

// New makes interceptors.
func New(limiter *ratelimit.Limiter, options Options) (*Limits, error) {
	// The middleware for HTTP tests the same options.
	tested := ratelimit.HTTP{Rules: options.Rules, Count: options.Count, Headers: options.Headers}
	if len(options.Rules) == 0 && options.Limits == nil {
		return nil, fmt.Errorf("%w: the interceptors have neither Rules nor Limits, expected one", ratelimit.ErrMisuse)
	}
	if len(options.Rules) > 0 {
		if _, err := limiter.Middleware(tested); err != nil {
			return nil, err
		}
	}
	if options.Key == nil {
		options.Key = byAddress
	}
	if options.Limits == nil {
		options.Limits = func(ctx context.Context, method string) ([]ratelimit.Limit, error) {
			return []ratelimit.Limit{{Key: options.Key(ctx, method), Rules: options.Rules}}, nil
		}
	}
	if options.Cost == nil {
		options.Cost = func(context.Context, string) ratelimit.Option { return ratelimit.Cost(1) }
	}
	return &Limits{limiter, options}, nil
}

func byAddress(ctx context.Context, _ string) string {
	address := ""
	if from, found := peer.FromContext(ctx); found && from.Addr.Network() != "unix" {
		address = from.Addr.String()
	}
	return "ip:" + ratelimit.Network(address, 64)
}

// Unary is an interceptor of unary calls.
func (s *Limits) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (answer any, err error) {
	tell := func(fields metadata.MD) { _ = grpc.SetHeader(ctx, fields) }
	err = s.serve(ctx, info.FullMethod, tell, func() (err error) {
		answer, err = serve(ctx, request)
		return err
	})
	return answer, err
}

// Stream is an interceptor of streams.
func (s *Limits) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	tell := func(fields metadata.MD) { _ = stream.SetHeader(fields) }
	return s.serve(stream.Context(), info.FullMethod, tell, func() error { return serve(server, stream) })
}

func (s *Limits) serve(ctx context.Context, method string, tell func(metadata.MD), serve func() error) error {
	limits, err := s.o.Limits(ctx, method)
	if err == nil && len(limits) == 0 {
		return serve()
	}
	var report ratelimit.Report
	var done func(failed bool)
	if err == nil {
		report, done, err = s.l.Charge(ctx, limits, s.o.Count, s.o.Cost(ctx, method))
	}
	if err != nil {
		return undecided(err)
	}
	fields := metadata.MD{}
	for _, field := range s.o.Headers.Fields(report) {
		fields.Append(strings.ToLower(field.Name), field.Value)
	}
	tell(fields)
	if !report.Allowed() {
		return denied(report)
	}
	failed := true
	defer func() { done(failed) }()
	if err := turn(ctx, report.Wait); err != nil {
		return err
	}
	err = serve()
	failed = err != nil
	return err
}

// turn waits for the turn that a leaky rule gives.
func turn(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// undecided is the status of a call without a decision. Clients learn nothing of the error.
func undecided(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case ratelimit.IsOutage(err), errors.Is(err, ratelimit.ErrSaturated):
		return with(codes.Unavailable, "no decision about the limit", time.Second)
	}
	return status.Error(codes.Internal, "the limit cannot be checked")
}

func denied(report ratelimit.Report) error {
	switch {
	case report.Source == ratelimit.NoServer:
		return with(codes.Unavailable, "no decision about the limit", report.Wait)
	case report.Verdict == ratelimit.Blocked:
		return with(codes.PermissionDenied, "blocked", report.Wait)
	}
	return with(codes.ResourceExhausted, "too many requests", report.Wait)
}

func with(code codes.Code, text string, wait time.Duration) error {
	told := status.New(code, text)
	if wait < 0 {
		return told.Err()
	}
	detailed, err := told.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		return told.Err()
	}
	return detailed.Err()
}
