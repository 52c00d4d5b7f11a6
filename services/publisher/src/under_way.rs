//! Work that goes on when its caller is gone, and that a drain waits for.

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Counts what is under way.
pub(crate) struct UnderWay(watch::Sender<usize>);

/// Also counts down when the work panics or is cut off.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl UnderWay {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Runs the work in a task of its own.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.send_modify(|count| *count += 1);
        let counted = Counted(self.0.clone());
        tokio::spawn(async move {
            let _counted = counted;
            work.await
        })
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when nothing is under way.
    pub(crate) async fn idle(&self) {
        // The sender lives as long as this does.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}
