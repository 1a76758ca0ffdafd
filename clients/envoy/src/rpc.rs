//! The gRPC service, which reads requests as [bytes](crate::wire).

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use prost::bytes::Buf;
use prost::{DecodeError, Message};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::codegen::{BoxFuture, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Response, Status};
use tonic_prost::ProstEncoder;

use crate::service::Service;
use crate::wire::RateLimitRequest;

/// The largest message to accept: a client's header, up to 8 MiB, may stand in several descriptors.
const LARGEST: usize = 64 << 20;

/// A request, or why its bytes are none.
type Decoded = Result<RateLimitRequest, DecodeError>;

/// The gRPC service.
#[derive(Clone)]
pub struct RateLimitServer(Arc<Service>);

impl RateLimitServer {
    pub fn new(service: Service) -> Self {
        Self(Arc::new(service))
    }
}

impl NamedService for RateLimitServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl tonic::codegen::Service<http::Request<Body>> for RateLimitServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/ShouldRateLimit") {
                return Ok(Status::unimplemented("expected ShouldRateLimit").into_http());
            }
            let mut grpc = Grpc::new(Bytes).max_decoding_message_size(LARGEST);
            Ok(grpc.unary(service, request).await)
        })
    }
}

impl UnaryService<Decoded> for RateLimitServer {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: tonic::Request<Decoded>) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move { service.answer(request.into_inner()).await.map(Response::new) })
    }
}

/// Leaves it to the service to report what it cannot decode.
struct Bytes;

impl Codec for Bytes {
    type Encode = RateLimitResponse;
    type Decode = Decoded;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self
    }
}

impl Decoder for Bytes {
    type Item = Decoded;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Decoded>, Status> {
        let whole = message.copy_to_bytes(message.remaining());
        Ok(Some(RateLimitRequest::decode(whole)))
    }
}
