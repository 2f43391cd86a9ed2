//! Waits for several futures at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Runs futures side by side in this task. Returns their results, in the same order.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(Running::new).collect();
    poll_fn(|context| {
        let mut all_ended = true;
        for one in running.iter_mut().filter(|one| one.output.is_none()) {
            match one.future.as_mut().poll(context) {
                Poll::Ready(output) => one.output = Some(output),
                Poll::Pending => all_ended = false,
            }
        }
        if all_ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|one| one.output).collect()
}

struct Running<F: Future> {
    future: Pin<Box<F>>,
    /// Its result, once it has ended. It is not polled again.
    output: Option<F::Output>,
}

impl<F: Future> Running<F> {
    fn new(future: F) -> Self {
        Self { future: Box::pin(future), output: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn futures_run_side_by_side_and_their_results_keep_their_order() {
        let (send, receive) = oneshot::channel();
        // The first one waits for the second.
        let first: Pin<Box<dyn Future<Output = u8>>> = Box::pin(async { receive.await.unwrap() });
        let second: Pin<Box<dyn Future<Output = u8>>> = Box::pin(async {
            send.send(1).unwrap();
            2
        });
        let results = join_all([first, second]).await;
        assert_eq!(results, [1, 2]);
        assert_eq!(join_all(Vec::<std::future::Ready<()>>::new()).await, []);
    }
}
