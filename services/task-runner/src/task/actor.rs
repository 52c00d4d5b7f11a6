//! The loop of one task.

use std::sync::Arc;
use std::time::Duration;

use tidegate_kafka::Warm;
use tidegate_protocol::sequence::Sequence;
use tidegate_protocol::task::{
    Answer, Life, MergedSegment, Refusal, Snapshot, TaskAction, TaskEvent, TaskMachine, Ticket,
};
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::families;
use tidegate_types::{SequenceId, TimestampMillis};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Board, Inbox, Input, Shared, TaskHandle, handoff, merge, now, publish, upload};
use crate::folder::TaskFolder;
use crate::ingest::{Command, Ingest, IngestSeed};
use crate::live::Live;
use crate::status;

/// Longest pause between two tries of saving the record.
const SAVE_BACKOFF: Duration = Duration::from_secs(5);

/// When the first actions of a task are carried out.
#[derive(Debug)]
pub(crate) enum Begin {
    /// At once; the answer goes to the caller of the assignment.
    Now(oneshot::Sender<Result<Answer, Refusal>>),
    /// When the runner says so.
    WhenTold,
}

struct Actor {
    machine: TaskMachine,
    spec: Arc<SupervisorSpec>,
    shared: Shared,
    folder: TaskFolder,
    board: Arc<Board>,
    live: Arc<Live>,
    inbox: Inbox,
    ingest: Option<Ingest>,
    /// A consumer that was connected before the task began.
    warm: Option<Warm>,
    /// Merging or uploading: one part at a time.
    preparing: Option<AbortHandle>,
    publishing: Option<AbortHandle>,
    awaiting: Option<AbortHandle>,
    /// Ends blocking work that cannot be aborted.
    stop: CancellationToken,
    wake: Option<TimestampMillis>,
}

/// Starts the actor of a task.
pub(crate) fn spawn(
    machine: TaskMachine,
    actions: Vec<TaskAction>,
    spec: SupervisorSpec,
    folder: TaskFolder,
    shared: Shared,
    begin: Begin,
    warm: Option<Warm>,
) -> TaskHandle {
    let (sender, inputs) = mpsc::unbounded_channel();
    let (alive, gone) = watch::channel(());
    let live = Arc::new(Live::default());
    let assignment = &machine.record().assignment;
    let id = assignment.task.clone();
    let board = Board::new(
        status::of(&machine.view()),
        &assignment.stream.topic,
        live.clone(),
    );
    let span = tracing::info_span!("task", task = %id, group = %assignment.group, supervisor = %assignment.supervisor);
    let actor = Actor {
        machine,
        spec: Arc::new(spec),
        shared,
        folder: folder.clone(),
        board: board.clone(),
        live,
        inbox: Inbox(sender.clone()),
        ingest: None,
        warm,
        preparing: None,
        publishing: None,
        awaiting: None,
        stop: CancellationToken::new(),
        wake: None,
    };
    tokio::spawn(tracing::Instrument::instrument(
        actor.run(inputs, actions, begin, alive),
        span,
    ));
    TaskHandle {
        id,
        board,
        folder,
        inbox: sender,
        gone,
    }
}

impl Actor {
    async fn run(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
        actions: Vec<TaskAction>,
        begin: Begin,
        alive: watch::Sender<()>,
    ) {
        let _alive = alive;
        let mut first = Some(actions);
        if let Begin::Now(reply) = begin
            && let Some(actions) = first.take()
            && self.carry_out(actions, Some(reply)).await.is_break()
        {
            return;
        }
        loop {
            let input = match self.wake {
                None => inputs.recv().await,
                Some(at) => {
                    let left = u64::try_from(at.0.saturating_sub(now().0)).unwrap_or(0);
                    tokio::select! {
                        input = inputs.recv() => input,
                        () = tokio::time::sleep(Duration::from_millis(left)) => {
                            self.wake = None;
                            Some(Input::Event(TaskEvent::Wake))
                        }
                    }
                }
            };
            let (event, reply) = match input {
                None => break,
                Some(Input::Begin) => {
                    if let Some(actions) = first.take()
                        && self.carry_out(actions, None).await.is_break()
                    {
                        break;
                    }
                    continue;
                }
                Some(Input::Event(event)) => (event, None),
                Some(Input::Call(event, reply)) => (event, Some(reply)),
            };
            if self.on(event, reply).await.is_break() {
                break;
            }
        }
        self.stop_work();
    }

    async fn on(
        &mut self,
        event: TaskEvent,
        reply: Option<oneshot::Sender<Result<Answer, Refusal>>>,
    ) -> std::ops::ControlFlow<()> {
        let before = self.machine.life();
        if let TaskEvent::Failed { detail } | TaskEvent::ParseBudgetExceeded { detail } = &event {
            tracing::warn!(%detail, "the task met an error");
        }
        match self.machine.on(now(), event) {
            Ok(actions) => {
                let flow = self.carry_out(actions, reply).await;
                let after = self.machine.life();
                if before != after {
                    tracing::debug!(?before, ?after, "the task moved on");
                }
                flow
            }
            Err(refusal) => {
                if let Some(reply) = reply {
                    let _ = reply.send(Err(refusal));
                } else {
                    tracing::debug!(%refusal, "a late event is left");
                }
                std::ops::ControlFlow::Continue(())
            }
        }
    }

    async fn carry_out(
        &mut self,
        actions: Vec<TaskAction>,
        mut reply: Option<oneshot::Sender<Result<Answer, Refusal>>>,
    ) -> std::ops::ControlFlow<()> {
        // Shown before it is done: whoever asks meanwhile sees at least what was decided (D27).
        self.board.set(status::of(&self.machine.view()));
        let mut flow = std::ops::ControlFlow::Continue(());
        for action in actions {
            match action {
                TaskAction::Save => self.save().await,
                TaskAction::Answer(answer) => {
                    if let Some(reply) = reply.take() {
                        let _ = reply.send(Ok(answer));
                    }
                }
                TaskAction::Report => self.shared.bell.notify_one(),
                TaskAction::Open => self.open(),
                TaskAction::DiscardRows | TaskAction::DropLocal => self.drop_rows().await,
                TaskAction::DropFiles { files } => self.drop_files(files).await,
                TaskAction::Read { until, sequences } => self.read(until, sequences),
                TaskAction::StopReading => {
                    // The consumer goes, the record has all numbers.
                    self.end_reading();
                    self.live.clear();
                }
                TaskAction::StandStill { ticket } => match &self.ingest {
                    Some(ingest) => ingest.send(Command::StandStill { ticket }),
                    None => self.inbox.send(TaskEvent::StoodStill {
                        ticket,
                        next: self.machine.next().clone(),
                    }),
                },
                TaskAction::Persist { ticket } => self.persist(ticket),
                TaskAction::Merge { part } => self.merge(part),
                TaskAction::Upload { part, segments } => self.upload(part, segments),
                TaskAction::Publish { part, attempt } => self.publish(part, attempt),
                TaskAction::AwaitHandoff { segments } => {
                    let work = handoff::wait(self.shared.clone(), segments, self.live.clone());
                    let work = self.spawn(work);
                    replace(&mut self.awaiting, work);
                }
                TaskAction::WakeAt(at) => self.wake = Some(at),
                TaskAction::StopWork => self.stop_work(),
                TaskAction::End(ending) => {
                    let supervisor = self.machine.record().assignment.supervisor.as_str();
                    self.shared.metrics.count(
                        &families::TASKS_ENDED,
                        [supervisor, status::ending_name(ending)],
                        1,
                    );
                    tracing::info!(?ending, reason = %self.machine.view().reason, "the task ended");
                    self.shared.bell.notify_one();
                }
                TaskAction::Leave => flow = std::ops::ControlFlow::Break(()),
            }
        }
        self.board.set(status::of(&self.machine.view()));
        flow
    }

    /// Nothing behind a save may happen before it is durable, so it is tried until it is.
    async fn save(&mut self) {
        let mut wait = Duration::from_millis(100);
        loop {
            let (folder, record) = (self.folder.clone(), self.machine.record().clone());
            let saved = tokio::task::spawn_blocking(move || folder.save(&record)).await;
            let error = match saved {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(%error, "the task's record cannot be written; it is tried again");
            let mut status = status::of(&self.machine.view());
            status.reason =
                format!("record.json cannot be written ({error}): free or repair runner.work_dir");
            self.board.set(status);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(SAVE_BACKOFF);
        }
    }

    fn open(&self) {
        let (folder, record, inbox) = (
            self.folder.clone(),
            self.machine.record().clone(),
            self.inbox.clone(),
        );
        tokio::task::spawn_blocking(move || {
            inbox.send(match folder.inspect(&record) {
                Ok(state) => TaskEvent::Opened(state),
                Err(error) => TaskEvent::Failed {
                    detail: format!("the task's folder cannot be read: {error}"),
                },
            });
        });
    }

    async fn drop_rows(&mut self) {
        self.live.clear();
        let folder = self.folder.clone();
        match tokio::task::spawn_blocking(move || folder.drop_rows()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "local files are left; they go with the folder"),
            Err(error) => tracing::warn!(%error, "local files are left; they go with the folder"),
        }
    }

    async fn drop_files(&mut self, files: Vec<String>) {
        let folder = self.folder.clone();
        match tokio::task::spawn_blocking(move || folder.drop_files(&files)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "local files are left; they go with the folder"),
            Err(error) => tracing::warn!(%error, "local files are left; they go with the folder"),
        }
    }

    fn read(&mut self, until: Option<tidegate_types::EndOffsets>, sequences: Vec<Sequence>) {
        if self.ingest.is_none() {
            let seed = IngestSeed {
                record: self.machine.record().clone(),
                spec: self.spec.clone(),
                shared: self.shared.clone(),
                folder: self.folder.clone(),
                inbox: self.inbox.clone(),
                live: self.live.clone(),
                warm: self.warm.take(),
            };
            match Ingest::start(seed) {
                Ok(ingest) => self.ingest = Some(ingest),
                Err(detail) => {
                    self.inbox.send(TaskEvent::Failed { detail });
                    return;
                }
            }
        }
        if let Some(ingest) = &self.ingest {
            ingest.send(Command::Read { until, sequences });
        }
    }

    fn persist(&self, ticket: Ticket) {
        if let Some(ingest) = &self.ingest {
            ingest.send(Command::Persist { ticket });
        } else {
            // Nothing was read in this life: the record is what there is.
            let read = self.machine.record().read.clone();
            let snapshot = Box::new(Snapshot {
                read,
                runs: Vec::new(),
            });
            self.inbox.send(TaskEvent::Persisted {
                ticket: Some(ticket),
                snapshot,
            });
        }
    }

    fn merge(&mut self, part: SequenceId) {
        let (record, spec, folder) = (
            self.machine.record().clone(),
            self.spec.clone(),
            self.folder.clone(),
        );
        let (stop, live, shared) = (self.stop.child_token(), self.live.clone(), self.shared.clone());
        let merging = merge::part(part, record, spec, folder, shared, live, stop);
        let work = self.spawn(async move {
            match merging.await {
                Ok(segments) => TaskEvent::Merged { part, segments },
                Err(detail) => TaskEvent::Failed { detail },
            }
        });
        replace(&mut self.preparing, work);
    }

    fn upload(&mut self, part: SequenceId, segments: Vec<MergedSegment>) {
        let task = self.machine.record().assignment.task.clone();
        let supervisor = self.machine.record().assignment.supervisor.clone();
        let job = upload::Job {
            shared: self.shared.clone(),
            part,
            rows: self.folder.rows(),
            task,
            supervisor,
            inbox: self.inbox.clone(),
            live: self.live.clone(),
        };
        replace(
            &mut self.preparing,
            tokio::spawn(job.run(segments)).abort_handle(),
        );
    }

    fn publish(&mut self, part: SequenceId, attempt: u32) {
        let record = self.machine.record();
        let Some(found) = record.part(part) else { return };
        let request = publish::request(record, found, self.shared.work_dir.epoch());
        let shared = self.shared.clone();
        let span = tracing::info_span!("publish", sequence = %part, attempt);
        let publishing = publish::send(shared, part, request);
        let work = self.spawn(tracing::Instrument::instrument(publishing, span));
        replace(&mut self.publishing, work);
    }

    fn spawn(&self, work: impl Future<Output = TaskEvent> + Send + 'static) -> AbortHandle {
        let inbox = self.inbox.clone();
        tokio::spawn(async move { inbox.send(work.await) }).abort_handle()
    }

    fn end_reading(&mut self) {
        if let Some(ingest) = self.ingest.take() {
            ingest.stop();
        }
    }

    fn stop_work(&mut self) {
        self.end_reading();
        self.warm = None;
        self.stop.cancel();
        self.wake = None;
        let work = [&mut self.preparing, &mut self.publishing, &mut self.awaiting];
        for work in work.into_iter().filter_map(Option::take) {
            work.abort();
        }
        if matches!(self.machine.life(), Life::Ended(_)) {
            self.live.clear();
        }
    }
}

/// The work before this one of the same kind is not wanted any more.
fn replace(slot: &mut Option<AbortHandle>, work: AbortHandle) {
    if let Some(before) = slot.replace(work) {
        before.abort();
    }
}
