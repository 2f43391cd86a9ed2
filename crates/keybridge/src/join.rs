//! Waits for several futures at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Runs futures side by side in this task. Returns their results, in the same order.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<(Pin<Box<F>>, Option<F::Output>)> =
        futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut all_ended = true;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ended) => *output = Some(ended),
                Poll::Pending => all_ended = false,
            }
        }
        if all_ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn futures_run_side_by_side_and_their_results_keep_their_order() {
        let (send, received) = oneshot::channel();
        let mut receive = Some(received);
        let mut send = Some(send);
        // The first one waits for the second.
        let results = join_all((0..2).map(|at| {
            let (receive, send) = (
                if at == 0 { receive.take() } else { None },
                if at == 1 { send.take() } else { None },
            );
            async move {
                if let Some(receive) = receive {
                    receive.await.unwrap();
                }
                if let Some(send) = send {
                    send.send(()).unwrap();
                }
                at
            }
        }))
        .await;
        assert_eq!(results, [0, 1]);
        assert_eq!(join_all(Vec::<std::future::Ready<()>>::new()).await, []);
    }
}
