//! The thread of a reader: polls, fills batches, hands them over, answers commands, looks after stalls.
//!
//! Promises: positions move only by what was put into a batch or by an end-of-partition; whatever happens to the
//! client, reading goes on from them, so nothing comes twice and nothing is left out. Seeks and stalls end in the
//! same plain way: a new client, assigned from the positions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::Consumer;
use rdkafka::types::RDKafkaErrorCode;
use tidegate_types::{Offset, PartitionId, PartitionOffsets, StartOffsets};
use tracing::{debug, warn};

use crate::admin::Admin;
use crate::error::{KafkaError, Trouble, TroubleKind};
use crate::handover::Handover;
use crate::partitions::{BatchBounds, News, Open, Partition, Partitions, Standing, deliver};
use crate::properties::ConsumerProperties;
use crate::raw::RawConsumer;
use crate::reader::{ReaderEvent, ReaderSettings};
use crate::warm::{self, Warm};
use crate::watchdog::{Verdict, Watchdog};

/// Longest time in which a command or a close is not looked at.
const TICK: Duration = Duration::from_millis(50);
/// Longest wait for an answer about offsets.
const QUESTION: Duration = Duration::from_secs(5);
/// Between two questions about a partition that waits for its start to be written.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same trouble is told at most this often.
const REPEAT_TROUBLE: Duration = Duration::from_secs(10);

/// What the task wants of the thread.
#[derive(Debug)]
pub(crate) enum Command {
    Seek { number: u64, offsets: StartOffsets },
    Pause(Vec<PartitionId>),
    Resume(Vec<PartitionId>),
    Close,
}

/// Everything that the thread starts from.
pub(crate) struct Seed {
    pub(crate) properties: ConsumerProperties,
    pub(crate) topic: String,
    pub(crate) start: StartOffsets,
    pub(crate) settings: ReaderSettings,
    pub(crate) handover: Arc<Handover>,
    pub(crate) rebuilds: Arc<AtomicU64>,
    pub(crate) inbox: mpsc::Receiver<Command>,
}

/// Says `Ended` however the thread ends, a panic included.
struct Farewell(Arc<Handover>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let why = if thread::panicking() {
            "the reading thread panicked"
        } else {
            "the reader was closed"
        };
        self.0.end(why.into());
    }
}

/// The body of the thread. Tells `started` how the start went.
pub(crate) fn run(seed: Seed, warm: Option<Warm>, started: &mpsc::Sender<Result<(), KafkaError>>) {
    let _farewell = Farewell(seed.handover.clone());
    match Worker::new(seed, warm) {
        Ok(mut worker) => {
            // The other end waits for exactly this.
            let _ = started.send(Ok(()));
            worker.work();
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// The answer to a question about offsets.
struct Answer {
    low: PartitionOffsets,
    high: PartitionOffsets,
}

struct Worker {
    seed: Seed,
    admin: Arc<Admin>,
    raw: RawConsumer,
    partitions: Partitions,
    watchdog: Watchdog,
    seeks_seen: u64,
    answers: (mpsc::Sender<Option<Answer>>, mpsc::Receiver<Option<Answer>>),
    asking: bool,
    /// `None`: ask at the next occasion.
    last_asked: Option<Instant>,
    told: HashMap<(TroubleKind, Option<PartitionId>), Instant>,
    /// Commands that came while the thread waited for room.
    deferred: VecDeque<Command>,
    /// What a poll brought besides records, in order, to be handled after it.
    news: Vec<News>,
    closing: bool,
}

impl Worker {
    fn new(seed: Seed, warm: Option<Warm>) -> Result<Self, KafkaError> {
        let admin = Admin::shared(&seed.properties)?;
        let mut watchdog = Watchdog::new(seed.settings.stall_after);
        let now = Instant::now();
        let partitions: Partitions = seed
            .start
            .iter()
            .map(|(partition, next)| {
                watchdog.watch(partition, now);
                (partition.0, Partition::at(next, false))
            })
            .collect();
        let raw = connect(&seed, warm, &partitions)?;
        Ok(Self {
            seed,
            admin,
            raw,
            partitions,
            watchdog,
            seeks_seen: 0,
            answers: mpsc::channel(),
            asking: false,
            last_asked: None,
            told: HashMap::new(),
            deferred: VecDeque::new(),
            news: Vec::new(),
            closing: false,
        })
    }

    fn work(&mut self) {
        let mut idle = false;
        loop {
            self.commands();
            if self.closing {
                return;
            }
            idle = self.poll(if idle { TICK } else { Duration::ZERO }) == 0;
            if idle {
                self.flush_all();
            }
            self.look_after();
        }
    }

    fn commands(&mut self) {
        loop {
            match self
                .deferred
                .pop_front()
                .map_or_else(|| self.seed.inbox.try_recv(), Ok)
            {
                Ok(Command::Close) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
                Ok(Command::Seek { number, offsets }) => self.seek(number, &offsets),
                Ok(Command::Pause(partitions)) => self.pause(&partitions, true),
                Ok(Command::Resume(partitions)) => self.pause(&partitions, false),
                Err(mpsc::TryRecvError::Empty) => return,
            }
        }
    }

    fn seek(&mut self, number: u64, offsets: &StartOffsets) {
        self.flush_all();
        self.seeks_seen = number;
        let now = Instant::now();
        for (partition, next) in offsets.iter() {
            let paused = self
                .partitions
                .get(&partition.0)
                .is_some_and(|known| known.paused);
            self.partitions.insert(partition.0, Partition::at(next, paused));
            self.watchdog.watch(partition, now);
        }
        self.rebuild();
    }

    fn pause(&mut self, partitions: &[PartitionId], paused: bool) {
        let mut list = TopicPartitionList::new();
        let now = Instant::now();
        for partition in partitions {
            let Some(known) = self.partitions.get_mut(&partition.0) else {
                continue;
            };
            if known.paused != paused {
                known.paused = paused;
                list.add_partition(&self.seed.topic, partition.0);
            }
            self.watchdog.excuse(*partition, now);
        }
        if list.count() == 0 {
            return;
        }
        let outcome = if paused {
            self.raw.consumer().pause(&list)
        } else {
            self.raw.consumer().resume(&list)
        };
        if let Err(error) = outcome {
            debug!(%error, paused, "the client did not take it; a new one is made from the positions");
            self.rebuild();
        }
        if paused {
            self.flush_all();
        }
    }

    fn poll(&mut self, wait: Duration) -> usize {
        let Self {
            raw,
            partitions,
            news,
            seed,
            ..
        } = self;
        let bounds = BatchBounds {
            records: seed.settings.batch_records,
            bytes: seed.settings.batch_bytes,
        };
        let spare = || seed.handover.spare_buffers();
        let count = raw.poll(wait, |delivered| {
            deliver(partitions, delivered, bounds, spare, news);
        });
        let mut news = std::mem::take(&mut self.news);
        for item in news.drain(..) {
            match item {
                News::Batch(id, open) => self.hand_over(id, open),
                News::Eof(id, begins, offset) => self.end_of_partition(id, begins, offset),
                News::Unreadable(id) => {
                    self.watchdog.unwatch(PartitionId(id));
                    self.last_asked = None;
                }
                News::Trouble {
                    partition,
                    code,
                    detail,
                    fatal,
                } => self.trouble(partition, code, detail, fatal),
            }
        }
        self.news = news;
        count
    }

    /// Waits for room, however long that takes; only a close ends the waiting.
    fn hand_over(&mut self, id: i32, open: Open) {
        let partition = PartitionId(id);
        let mut batch = open.into_batch(partition);
        let mut waited = false;
        while let Err(refused) = self.seed.handover.offer(self.seeks_seen, batch, TICK) {
            batch = refused;
            waited = true;
            self.close_if_asked();
            if self.closing {
                return;
            }
        }
        let now = Instant::now();
        self.watchdog.progress(partition, now);
        if waited {
            // The reader stood still for the task's sake.
            self.watchdog.excuse_all(now);
        }
    }

    /// While blocked only a close matters; other commands wait for their turn, in order.
    fn close_if_asked(&mut self) {
        match self.seed.inbox.try_recv() {
            Ok(Command::Close) | Err(mpsc::TryRecvError::Disconnected) => self.closing = true,
            Ok(command) => self.deferred.push_back(command),
            Err(mpsc::TryRecvError::Empty) => {}
        }
    }

    fn flush_all(&mut self) {
        let open: Vec<(i32, Open)> = self
            .partitions
            .iter_mut()
            .filter_map(|(id, partition)| Some((*id, partition.open.take()?)))
            .collect();
        for (id, open) in open {
            self.hand_over(id, open);
        }
    }

    fn end_of_partition(&mut self, id: i32, begins: Offset, offset: Offset) {
        let partition = PartitionId(id);
        self.watchdog.progress(partition, Instant::now());
        let event = ReaderEvent::PartitionEof { partition, offset };
        self.seed.handover.tell(self.seeks_seen, Some(begins), event);
    }

    fn trouble(&mut self, id: Option<i32>, code: RDKafkaErrorCode, detail: String, fatal: bool) {
        let kind = if fatal { TroubleKind::Fatal } else { kind_of(code) };
        let partition = id.map(PartitionId);
        let now = Instant::now();
        let again = self
            .told
            .get(&(kind, partition))
            .is_some_and(|at| now.duration_since(*at) < REPEAT_TROUBLE);
        if !again {
            self.told.insert((kind, partition), now);
            let detail = if detail.is_empty() {
                code.to_string()
            } else {
                detail
            };
            self.tell(ReaderEvent::Trouble(Trouble {
                kind,
                partition,
                detail,
            }));
        }
    }

    fn tell(&self, event: ReaderEvent) {
        self.seed.handover.tell(self.seeks_seen, None, event);
    }

    /// Asks the broker about partitions that stand or are silent, on a thread of its own, and takes the answer.
    fn look_after(&mut self) {
        while let Ok(answer) = self.answers.1.try_recv() {
            self.asking = false;
            match answer {
                Some(answer) => self.answered(&answer),
                None => self.watchdog.excuse_all(Instant::now()), // no broker: not the consumer's fault
            }
        }
        let now = Instant::now();
        if self.asking
            || self
                .last_asked
                .is_some_and(|at| now.saturating_duration_since(at) < ASK_AGAIN)
        {
            return;
        }
        self.last_asked = Some(now);
        let paused = |id: &PartitionId| {
            self.partitions
                .get(&id.0)
                .is_none_or(|partition| partition.paused)
        };
        let mut ids = self.watchdog.silent(now);
        ids.retain(|id| !paused(id));
        ids.extend(
            self.partitions
                .iter()
                .filter(|(_, p)| matches!(p.standing, Standing::Asking | Standing::BeyondEnd { .. }))
                .map(|(id, _)| PartitionId(*id)),
        );
        if !ids.is_empty() {
            self.ask(ids);
        }
    }

    fn ask(&mut self, ids: Vec<PartitionId>) {
        let (admin, topic, answers) = (
            self.admin.clone(),
            self.seed.topic.clone(),
            self.answers.0.clone(),
        );
        let asked = thread::Builder::new()
            .name("kafka question".into())
            .spawn(move || {
                let answer = admin.earliest(&topic, &ids, QUESTION).and_then(|low| {
                    Ok(Answer {
                        low,
                        high: admin.latest(&topic, &ids, QUESTION)?,
                    })
                });
                if let Err(error) = &answer {
                    debug!(%error, "offsets are not known for now");
                }
                // The reader may be gone by now.
                let _ = answers.send(answer.ok());
            });
        match asked {
            Ok(_) => self.asking = true,
            Err(error) => warn!(%error, "no thread for a question about offsets; asked again later"),
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let now = Instant::now();
        let mut back_in_range = false;
        let mut events = Vec::new();
        for (id, partition) in &mut self.partitions {
            let id = PartitionId(*id);
            if !matches!(partition.standing, Standing::Asking | Standing::BeyondEnd { .. }) {
                continue;
            }
            let (Some(low), Some(high)) = (answer.low.get(id), answer.high.get(id)) else {
                continue;
            };
            let wanted = partition.next;
            if wanted < low {
                partition.standing = Standing::Lost;
                events.push(ReaderEvent::OutOfRange {
                    partition: id,
                    wanted,
                    low,
                    high,
                });
            } else if wanted > high {
                if partition.standing != (Standing::BeyondEnd { told: true }) {
                    events.push(ReaderEvent::BeyondEnd {
                        partition: id,
                        wanted,
                        low,
                        high,
                    });
                }
                partition.standing = Standing::BeyondEnd { told: true };
            } else {
                partition.standing = Standing::Reading;
                self.watchdog.watch(id, now);
                back_in_range = true;
            }
        }
        for event in events {
            self.tell(event);
        }
        let next = self
            .partitions
            .iter()
            .filter(|(_, p)| p.standing == Standing::Reading && !p.paused)
            .map(|(id, p)| (PartitionId(*id), p.next))
            .collect();
        match self.watchdog.judge(&answer.high, &next, now) {
            Verdict::Rebuild => {
                let rebuilds = self.seed.rebuilds.fetch_add(1, Ordering::Relaxed) + 1;
                warn!(
                    topic = self.seed.topic,
                    rebuilds, "lag but no records: the consumer is made anew"
                );
                self.rebuild();
                self.tell(ReaderEvent::Rebuilt { rebuilds });
            }
            Verdict::Fine if back_in_range => self.rebuild(),
            Verdict::Fine => {}
        }
    }

    /// A new client from the positions; the old one is torn down beside, since that may wait on a broker (B74).
    fn rebuild(&mut self) {
        self.flush_all();
        match connect(&self.seed, None, &self.partitions) {
            Ok(raw) => {
                let old = std::mem::replace(&mut self.raw, raw);
                old.tear_down_beside();
                self.watchdog.excuse_all(Instant::now());
            }
            Err(error) => {
                self.tell(ReaderEvent::Trouble(Trouble {
                    kind: TroubleKind::Fatal,
                    partition: None,
                    detail: error.to_string(),
                }));
            }
        }
    }
}

/// A new client, assigned to everything that is to be read.
fn connect(seed: &Seed, warm: Option<Warm>, partitions: &Partitions) -> Result<RawConsumer, KafkaError> {
    let failed = |detail: String| KafkaError::Client {
        what: format!(
            "making a consumer of topic {:?} on {}",
            seed.topic,
            seed.properties.servers()
        ),
        detail,
    };
    let consumer = match warm {
        Some(warm) => warm.into_client(),
        None => warm::client(&seed.properties, &seed.settings).map_err(|error| failed(error.to_string()))?,
    };
    let mut assigned = TopicPartitionList::with_capacity(partitions.len());
    let mut paused = TopicPartitionList::new();
    for (id, partition) in partitions.iter().filter(|(_, p)| p.standing == Standing::Reading) {
        assigned
            .add_partition_offset(&seed.topic, *id, rdkafka::Offset::Offset(partition.next.0))
            .map_err(|error| failed(error.to_string()))?;
        if partition.paused {
            paused.add_partition(&seed.topic, *id);
        }
    }
    consumer
        .assign(&assigned)
        .map_err(|error| failed(error.to_string()))?;
    if paused.count() > 0 {
        consumer
            .pause(&paused)
            .map_err(|error| failed(error.to_string()))?;
    }
    RawConsumer::new(consumer, seed.settings.batch_records)
        .ok_or_else(|| failed("the client has no consumer queue".into()))
}

fn kind_of(code: RDKafkaErrorCode) -> TroubleKind {
    match code {
        RDKafkaErrorCode::AllBrokersDown
        | RDKafkaErrorCode::BrokerTransportFailure
        | RDKafkaErrorCode::Resolve
        | RDKafkaErrorCode::OperationTimedOut
        | RDKafkaErrorCode::RequestTimedOut => TroubleKind::BrokersUnreachable,
        RDKafkaErrorCode::Authentication
        | RDKafkaErrorCode::SaslAuthenticationFailed
        | RDKafkaErrorCode::SSL => TroubleKind::Authentication,
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => TroubleKind::Authorization,
        RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition
        | RDKafkaErrorCode::UnknownTopicOrPartition => TroubleKind::UnknownTopic,
        RDKafkaErrorCode::BadCompression
        | RDKafkaErrorCode::BadMessage
        | RDKafkaErrorCode::InvalidMessage
        | RDKafkaErrorCode::NotImplemented => TroubleKind::Corrupt,
        RDKafkaErrorCode::Fatal => TroubleKind::Fatal,
        _ => TroubleKind::Other,
    }
}
