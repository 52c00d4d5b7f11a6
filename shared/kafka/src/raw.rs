//! Reading through librdkafka's C interface, many records a call.
//!
//! Why not `BaseConsumer::poll`: it gives one record a call, and it drops what we need of an error, namely the
//! offset of an end of partition (which a range's completeness rests on, B18) and the partition of an
//! out-of-range answer (B21).
//! Owns: two queue references of one client. Promises: every message and event is destroyed exactly once; no
//! pointer leaves this file.
#![allow(
    unsafe_code,
    reason = "librdkafka's batch interface has no safe wrapper; each block says why it is sound"
)]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::RDKafkaErrorCode;

use crate::batch::TimestampKind;
use crate::client::{self, Quiet};

/// One thing that the client delivered.
pub(crate) enum Delivered<'m> {
    Record(RawRecord<'m>),
    /// Nothing at or above `offset` for now.
    Eof {
        partition: i32,
        offset: i64,
    },
    Failed {
        partition: Option<i32>,
        code: RDKafkaErrorCode,
        detail: String,
        fatal: bool,
    },
}

/// A record, borrowed from the client's buffers.
pub(crate) struct RawRecord<'m> {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) timestamp_kind: TimestampKind,
    pub(crate) key: Option<&'m [u8]>,
    pub(crate) value: Option<&'m [u8]>,
}

/// A reference to one of a client's queues.
struct Queue(NonNull<c::rd_kafka_queue_t>);

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a `rd_kafka_queue_get_*` call, which gave us this one reference.
        unsafe { c::rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// The queue of errors and log lines, kept apart from the records for as long as this lives: the batch call would
/// swallow errors that arrive among records. Closing a client expects the two joined again.
struct Events {
    queue: Queue,
    client: *mut c::rd_kafka_t,
}

impl Events {
    /// `None` when the client has no such queue.
    ///
    /// # Safety
    /// `client` is a live consumer that outlives the result.
    unsafe fn apart(client: *mut c::rd_kafka_t) -> Option<Self> {
        // SAFETY: a live handle (the caller's promise); the call gives a counted reference or null.
        let queue = Queue(NonNull::new(unsafe { c::rd_kafka_queue_get_main(client) })?);
        // SAFETY: a live queue; null ends its forwarding.
        unsafe { c::rd_kafka_queue_forward(queue.0.as_ptr(), ptr::null_mut()) };
        Some(Self { queue, client })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: the client is still live (promise of `apart`).
        unsafe { c::rd_kafka_poll_set_consumer(self.client) };
    }
}

/// A consumer with its two queues. Not `Send`: it lives and dies on the reader's thread. Fields drop in order, so
/// the queue references go before the client.
pub(crate) struct RawConsumer {
    records: Queue,
    events: Events,
    messages: Vec<*mut c::rd_kafka_message_t>,
    consumer: BaseConsumer<Quiet>,
}

impl RawConsumer {
    /// `None` when the client has no consumer queue, that is, no `group.id`.
    pub(crate) fn new(consumer: BaseConsumer<Quiet>, most_at_once: usize) -> Option<Self> {
        let client = consumer.client().native_ptr();
        // SAFETY: `client` is a live handle; both calls give a counted reference or null.
        let records = Queue(NonNull::new(unsafe { c::rd_kafka_queue_get_consumer(client) })?);
        // SAFETY: `consumer` stands behind `events` in the result, so it outlives it.
        let events = unsafe { Events::apart(client) }?;
        Some(Self {
            records,
            events,
            messages: vec![ptr::null_mut(); most_at_once.max(1)],
            consumer,
        })
    }

    pub(crate) fn consumer(&self) -> &BaseConsumer<Quiet> {
        &self.consumer
    }

    /// Closes the client on another thread, since that may wait on a broker (B74).
    pub(crate) fn tear_down_beside(self) {
        let Self {
            records,
            events,
            messages: _,
            consumer,
        } = self;
        drop((records, events));
        let gone = std::thread::Builder::new()
            .name("kafka teardown".into())
            .spawn(move || drop(consumer));
        if let Err(error) = gone {
            // The closure, and the client with it, was dropped right here.
            tracing::warn!(%error, "no thread to tear down a Kafka client");
        }
    }

    /// Gives everything that is there now to `each`; when there is nothing, waits up to `wait` for the first.
    /// Answers how many there were.
    pub(crate) fn poll(&mut self, wait: Duration, mut each: impl FnMut(Delivered<'_>)) -> usize {
        let mut count = self.poll_events(&mut each);
        let size = if wait.is_zero() { self.messages.len() } else { 1 };
        let millis = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: `messages` has room for `size` pointers and is ours alone.
        let taken = unsafe {
            c::rd_kafka_consume_batch_queue(self.records.0.as_ptr(), millis, self.messages.as_mut_ptr(), size)
        };
        let taken = usize::try_from(taken).unwrap_or(0).min(size);
        for slot in &mut self.messages[..taken] {
            let Some(message) = NonNull::new(std::mem::replace(slot, ptr::null_mut())) else {
                continue;
            };
            let message = Message(message);
            each(message.delivered());
            count += 1;
        }
        count
    }

    fn poll_events(&mut self, each: &mut impl FnMut(Delivered<'_>)) -> usize {
        let mut count = 0;
        // SAFETY: a live queue; the event is ours until `Event` drops it.
        while let Some(event) =
            NonNull::new(unsafe { c::rd_kafka_queue_poll(self.events.queue.0.as_ptr(), 0) })
        {
            if let Some(failed) = Event(event).read() {
                each(failed);
                count += 1;
            }
        }
        count
    }
}

/// A message that is destroyed when dropped.
struct Message(NonNull<c::rd_kafka_message_t>);

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the batch call gave us this message; nothing else destroys it.
        unsafe { c::rd_kafka_message_destroy(self.0.as_ptr()) }
    }
}

impl Message {
    fn delivered(&self) -> Delivered<'_> {
        // SAFETY: the message is live for as long as `self`.
        let message = unsafe { self.0.as_ref() };
        match message.err {
            c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => self.record(message),
            c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF => Delivered::Eof {
                partition: message.partition,
                offset: message.offset,
            },
            code => Delivered::Failed {
                partition: (message.partition >= 0).then_some(message.partition),
                code: RDKafkaErrorCode::from(code),
                // For an error the payload is its text.
                detail: String::from_utf8_lossy(
                    bytes(message.payload.cast(), message.len).unwrap_or_default(),
                )
                .trim_end_matches('\0')
                .to_owned(),
                fatal: code == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__FATAL,
            },
        }
    }

    fn record<'m>(&'m self, message: &'m c::rd_kafka_message_t) -> Delivered<'m> {
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: a live message, and a place for the answer.
        let timestamp = unsafe { c::rd_kafka_message_timestamp(self.0.as_ptr(), &raw mut kind) };
        Delivered::Record(RawRecord {
            partition: message.partition,
            offset: message.offset,
            timestamp,
            timestamp_kind: match kind {
                c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME => TimestampKind::Create,
                c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => TimestampKind::LogAppend,
                c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => TimestampKind::Missing,
            },
            key: bytes(message.key.cast(), message.key_len),
            value: bytes(message.payload.cast(), message.len),
        })
    }
}

/// The bytes of a live message; `None` for null, which is not the same as empty.
fn bytes<'m>(start: *const u8, length: usize) -> Option<&'m [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: only called with the pointer and length pair of a live message, whose bytes do not change; the
    // lifetime is tied to the message by the signatures of the callers.
    Some(unsafe { std::slice::from_raw_parts(start, length) })
}

/// An event that is destroyed when dropped.
struct Event(NonNull<c::rd_kafka_event_t>);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: polling gave us this event; nothing else destroys it.
        unsafe { c::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

impl Event {
    fn read(&self) -> Option<Delivered<'static>> {
        let event = self.0.as_ptr();
        // SAFETY: a live event, here and below; texts are copied before it is dropped.
        match unsafe { c::rd_kafka_event_type(event) } {
            c::RD_KAFKA_EVENT_ERROR => {
                let (code, detail, fatal) = unsafe {
                    (
                        c::rd_kafka_event_error(event),
                        text(c::rd_kafka_event_error_string(event)),
                        c::rd_kafka_event_error_is_fatal(event) != 0,
                    )
                };
                Some(Delivered::Failed {
                    partition: None,
                    code: RDKafkaErrorCode::from(code),
                    detail,
                    fatal,
                })
            }
            c::RD_KAFKA_EVENT_LOG => {
                let (mut facility, mut message, mut level) = (ptr::null(), ptr::null(), 0);
                // SAFETY: three places for the answers.
                if unsafe {
                    c::rd_kafka_event_log(event, &raw mut facility, &raw mut message, &raw mut level)
                } == 0
                {
                    // SAFETY: both texts live as long as the event.
                    let (facility, message) = unsafe { (text(facility), text(message)) };
                    client::log(level, &facility, &message);
                }
                None
            }
            _ => None,
        }
    }
}

/// A C text, copied; empty for null.
///
/// # Safety
/// `start` is null or a live, zero-ended text.
pub(crate) unsafe fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
}
