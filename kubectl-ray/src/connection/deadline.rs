//! `--request-timeout`: a limit for the whole answer; where the answer is a stream, for its head alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, header};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Layer, Service};

use crate::error::{Exit, Failure};

/// Puts [`Deadline`] around a service.
#[derive(Clone, Copy)]
pub(super) struct DeadlineLayer(Duration);

impl DeadlineLayer {
    /// `limit` for each request.
    pub(super) fn new(limit: Duration) -> Self {
        Self(limit)
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline { inner, limit: self.0 }
    }
}

/// A service whose answers are late after a while.
pub(super) struct Deadline<S> {
    inner: S,
    limit: Duration,
}

impl<S, A, B> Service<Request<A>> for Deadline<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<Limited<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (limit, end) = (self.limit, Instant::now() + self.limit);
        let body_end = (!is_stream(&request)).then_some(end);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout_at(end, answer).await.map_err(|_| late(limit))?;
            Ok(answer.map_err(Into::into)?.map(|body| Limited {
                body: Box::pin(body),
                end: body_end.map(|end| Box::pin(sleep_until(end))),
                limit,
            }))
        })
    }
}

/// Watches, logs, and what is upgraded to forwarded ports and commands go on for as long as they like.
fn is_stream<A>(request: &Request<A>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.headers().contains_key(header::UPGRADE)
        || request.uri().path().ends_with("/log")
        || query.split('&').any(|pair| pair == "watch=true")
}

fn late(limit: Duration) -> BoxError {
    let text = format!("the API server did not answer within {limit:?}");
    Failure::new(Exit::TimedOut, text)
        .hint("allow more time with --request-timeout")
        .into()
}

/// A body that fails once its time is over.
pub(super) struct Limited<B> {
    body: Pin<Box<B>>,
    end: Option<Pin<Box<Sleep>>>,
    limit: Duration,
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let end = self.end.as_mut();
        if end.is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Some(Err(late(self.limit))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_answers() {
        let stream = |uri: &str| is_stream(&Request::get(uri).body(()).unwrap());
        assert!(stream("/api/v1/pods?limit=500&watch=true"));
        assert!(stream("/api/v1/namespaces/a/pods/p/log?follow=true"));
        assert!(!stream("/apis/ray.io/v1/rayclusters?limit=500"));
        let upgraded = Request::get("/exec")
            .header(header::UPGRADE, "websocket")
            .body(());
        assert!(is_stream(&upgraded.unwrap()));
    }
}
