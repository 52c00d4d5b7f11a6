//! The broker's id of a topic, through librdkafka's `DescribeTopics` (the Rust crate has no wrapper for it).
//!
//! With it a topic that was deleted and created again is told from the old one even when the new log is already
//! longer (B23). Brokers before 2.8 have no topic ids: then the answer is empty.
#![allow(
    unsafe_code,
    reason = "DescribeTopics has no safe wrapper; each block says why it is sound"
)]

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use crate::raw::text;

/// How librdkafka writes "no id".
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Destroys what it holds.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, RDKafkaErrorCode> {
        NonNull::new(pointer)
            .map(|pointer| Self(pointer, destroy))
            .ok_or(RDKafkaErrorCode::Fail)
    }
    fn ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the constructor that this destructor belongs to, and destroyed only here.
        unsafe { (self.1)(self.0.as_ptr()) }
    }
}

/// Asks one broker for the id of `topic`; an empty text when it has none. The broker is named, since by default the
/// question goes to the controller, which not every cluster shows.
///
/// # Safety
/// `client` is a live librdkafka handle for the whole call.
pub(crate) unsafe fn describe(
    client: *mut c::rd_kafka_t,
    broker: i32,
    topic: &str,
    deadline: Duration,
) -> Result<String, RDKafkaErrorCode> {
    let name = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let millis = i32::try_from(deadline.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: a live client (the caller's promise); each object is destroyed once, by `Owned`.
    let queue = Owned::new(
        unsafe { c::rd_kafka_queue_new(client) },
        c::rd_kafka_queue_destroy,
    )?;
    let options = Owned::new(
        unsafe {
            c::rd_kafka_AdminOptions_new(client, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS)
        },
        c::rd_kafka_AdminOptions_destroy,
    )?;
    // SAFETY: live options, and no place for an error text is wanted. A refused time-out leaves the default.
    let _: RDKafkaRespErr =
        unsafe { c::rd_kafka_AdminOptions_set_request_timeout(options.ptr(), millis, ptr::null_mut(), 0) };
    // SAFETY: as above; a refusal leaves the question to the controller.
    let _: RDKafkaRespErr =
        unsafe { c::rd_kafka_AdminOptions_set_broker(options.ptr(), broker, ptr::null_mut(), 0) };
    let mut names = [name.as_ptr()];
    // SAFETY: one live name; the collection copies it.
    let topics = Owned::new(
        unsafe { c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1) },
        c::rd_kafka_TopicCollection_destroy,
    )?;
    // SAFETY: all four are live; the request keeps what it needs. A late answer goes to a queue that is gone,
    // which librdkafka handles.
    unsafe { c::rd_kafka_DescribeTopics(client, topics.ptr(), options.ptr(), queue.ptr()) };
    // SAFETY: a live queue; the event is ours.
    let event = NonNull::new(unsafe { c::rd_kafka_queue_poll(queue.ptr(), millis) })
        .map(|event| Owned(event, c::rd_kafka_event_destroy))
        .ok_or(RDKafkaErrorCode::OperationTimedOut)?;
    // SAFETY: a live event; what is read from it below lives as long as it does.
    let failed = unsafe { c::rd_kafka_event_error(event.ptr()) };
    if failed != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(failed.into());
    }
    let result = unsafe { c::rd_kafka_event_DescribeTopics_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::Fail);
    }
    let mut count = 0;
    let found = unsafe { c::rd_kafka_DescribeTopics_result_topics(result, &raw mut count) };
    if count == 0 || found.is_null() {
        return Err(RDKafkaErrorCode::UnknownTopic);
    }
    // SAFETY: `found` points to `count` descriptions, at least one.
    let id = unsafe {
        let description = *found;
        let error = c::rd_kafka_TopicDescription_error(description);
        if !error.is_null() {
            let code = c::rd_kafka_error_code(error);
            if code != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(code.into());
            }
        }
        let id = c::rd_kafka_TopicDescription_topic_id(description);
        if id.is_null() {
            String::new()
        } else {
            text(c::rd_kafka_Uuid_base64str(id))
        }
    };
    Ok(if id == NO_ID { String::new() } else { id })
}
