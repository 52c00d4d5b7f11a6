//! Carrying actions out: stores are waited for, calls are begun in order and answered by events.

use std::future::Future;
use std::time::Duration;

use tidegate_protocol::negotiation::INCREMENTAL_HANDOFF;
use tidegate_protocol::supervisor::{
    Action, CallError, Committed, Event, PauseAnswer, PrepareCall, RegisterCall, ResetCall, TaskAnswer,
};
use tidegate_protocol::task::Assignment;
use tidegate_rpc::clients::{HandoffClient, PublisherClient, RunnerClient};
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::task_runner::v1 as runner;
use tidegate_rpc::{Transport, convert};
use tidegate_types::{RunnerId, TaskId};
use tonic::{Response, Status};

use super::{Actor, Message, now};
use crate::store::Deposed;
use crate::wire;

/// The other services.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// This coordinator can do checkpointing groups.
    pub(crate) can_checkpoint: bool,
    pub(crate) to_publisher: Transport,
    pub(crate) publisher: PublisherClient,
    pub(crate) handoff: HandoffClient,
}

/// One call with its deadline. No answer in time is an unknown outcome.
async fn call<T>(
    limit: Duration,
    asked: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(wire::call_error(&status)),
        Err(_) => Err(CallError::Unreachable(format!(
            "no answer within {} s",
            limit.as_secs_f32()
        ))),
    }
}

fn committed(answer: Result<publisher::CommittedOffsets, CallError>) -> Result<Committed, CallError> {
    wire::committed(&answer?).map_err(|bad| wire::garbled(&bad))
}

impl Actor {
    /// In this order; what has to be durable is, before the next one begins.
    pub(super) async fn perform(&mut self, actions: Vec<Action>) -> Result<(), Deposed> {
        for action in actions {
            self.perform_one(action).await?;
        }
        Ok(())
    }

    async fn perform_one(&mut self, action: Action) -> Result<(), Deposed> {
        match action {
            Action::Store(changes) => self.world.store.write(&self.id, changes).await?,
            Action::CreateGroup { group, base, changes } => {
                self.world.store.write(&self.id, changes).await?;
                let logged = self.world.store.logged(&base).await?;
                self.local.push_back(Event::GroupCreated { group, logged });
            }
            Action::RecordDecision { group, base, entry } => {
                let entry = self
                    .world
                    .store
                    .decide(&self.id, &group, &base, entry, now())
                    .await?;
                let (sequence, end) = (entry.sequence, &entry.decision.end);
                if entry.finish {
                    tracing::info!(supervisor = %self.id, %group, %sequence, %end, "the end of a group is decided");
                } else {
                    tracing::info!(supervisor = %self.id, %group, %sequence, %end, "a checkpoint is decided");
                }
                self.local.push_back(Event::DecisionStored { group, entry });
            }
            Action::Discover { .. } => self.discover(),
            Action::GetCommitted { topic } => self.get_committed(topic),
            Action::InitializeOffsets { stream, start } => {
                let request = publisher::InitializeOffsetsRequest {
                    supervisor_id: self.id.to_string(),
                    stream: Some(wire::stream(&stream)),
                    start: Some((&start).into()),
                    coordinator_epoch: self.epoch(),
                };
                let (mut client, limit) = self.publisher();
                self.answer(async move {
                    let answer = call(limit, client.initialize_offsets(request)).await;
                    Event::OffsetsInitialized(committed(answer))
                });
            }
            Action::ResetOffsets(call) => self.reset_offsets(call),
            Action::RegisterGroup(call) => self.register_group(call),
            Action::EndGroup { supervisor, group } => {
                let request = publisher::EndGroupRequest {
                    supervisor_id: supervisor.to_string(),
                    group_id: group.to_string(),
                    coordinator_epoch: self.epoch(),
                };
                let (mut client, limit) = self.publisher();
                self.answer(async move {
                    let result = call(limit, client.end_group(request)).await.map(|_| ());
                    Event::GroupEnded { group, result }
                });
            }
            Action::AssignTask { runner, assignment } => self.assign(runner, &assignment),
            Action::PrepareTask(prepare) => self.prepare(*prepare),
            Action::PauseTask { runner, task } => self.pause(runner, task),
            Action::ResumeTask { runner, task } => {
                let request = runner::ResumeTaskRequest {
                    task_id: task.to_string(),
                    coordinator_epoch: self.epoch(),
                };
                self.ask_runner(
                    &runner,
                    task,
                    move |mut client, limit| async move {
                        TaskAnswer::Resumed(call(limit, client.resume_task(request)).await.map(|_| ()))
                    },
                    |error| TaskAnswer::Resumed(Err(error)),
                );
            }
            Action::SetEndOffsets { runner, task, entry } => {
                let request = runner::SetEndOffsetsRequest {
                    task_id: task.to_string(),
                    coordinator_epoch: self.epoch(),
                    sequence_id: entry.sequence.0,
                    decision_id: entry.decision.decision_id,
                    end: Some((&entry.decision.end).into()),
                    finish: entry.finish,
                };
                self.ask_runner(
                    &runner,
                    task,
                    move |mut client, limit| async move {
                        TaskAnswer::EndTold(call(limit, client.set_end_offsets(request)).await.map(|_| ()))
                    },
                    |error| TaskAnswer::EndTold(Err(error)),
                );
            }
            Action::StopTask { runner, task, reason } => {
                tracing::info!(supervisor = %self.id, %runner, %task, ?reason, "a task is stopped");
                let request = runner::StopTaskRequest {
                    task_id: task.to_string(),
                    coordinator_epoch: self.epoch(),
                    reason: wire::stop_reason(reason).into(),
                    keep_state: false,
                };
                self.ask_runner(
                    &runner,
                    task,
                    move |mut client, limit| async move {
                        TaskAnswer::Stopped(call(limit, client.stop_task(request)).await.map(|_| ()))
                    },
                    |error| TaskAnswer::Stopped(Err(error)),
                );
            }
            Action::Alert(message) => tracing::warn!(supervisor = %self.id, "{message}"),
        }
        Ok(())
    }

    fn prepare(&self, prepare: PrepareCall) {
        let request = runner::PrepareTaskRequest {
            task_id: prepare.task.to_string(),
            assignment_token: prepare.token.to_string(),
            supervisor_id: prepare.supervisor.to_string(),
            group_id: prepare.group.to_string(),
            stream: Some(wire::stream(&prepare.stream)),
            spec_json: prepare.spec_json,
            coordinator_epoch: self.epoch(),
        };
        self.ask_runner(
            &prepare.runner,
            prepare.task,
            move |mut client, limit| async move {
                let status = call(limit, client.prepare_task(request)).await;
                TaskAnswer::Prepared(status.and_then(|status| {
                    wire::report(&status)
                        .map(Box::new)
                        .map_err(|bad| wire::garbled(&bad))
                }))
            },
            |error| TaskAnswer::Prepared(Err(error)),
        );
    }

    fn epoch(&self) -> u64 {
        self.world.store.epoch.0
    }
    fn publisher(&self) -> (PublisherClient, Duration) {
        (self.world.peers.publisher.clone(), self.world.rpc_timeout)
    }

    /// Begins a call whose answer comes as an event.
    fn answer(&self, asked: impl Future<Output = Event> + Send + 'static) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            // The actor may have ended meanwhile; then nobody waits for the answer.
            let _ = sender.send(Message::Event(asked.await));
        });
    }

    fn discover(&mut self) {
        match self.spec() {
            Ok(spec) => {
                let broker = self.world.broker.clone();
                self.answer(async move { Event::Discovered(broker.discover(&spec).await) });
            }
            Err(why) => self.answer(async move { Event::Discovered(Err(why)) }),
        }
    }

    fn get_committed(&self, topic: String) {
        let request = publisher::GetCommittedOffsetsRequest {
            supervisor_id: self.id.to_string(),
            topic,
        };
        let (mut client, limit) = self.publisher();
        let (sender, peers) = (self.sender.clone(), self.world.peers.clone());
        self.answer(async move {
            let answer = call(limit, client.get_committed_offsets(request)).await;
            // Known by then: the peer was greeted before the call.
            let checkpoint = peers.can_checkpoint && peers.to_publisher.peer_can(INCREMENTAL_HANDOFF);
            let _ = sender.send(Message::Event(Event::PeersCan { checkpoint }));
            Event::CommittedAnswered(committed(answer).map(Some))
        });
    }

    fn reset_offsets(&self, reset: ResetCall) {
        let request = publisher::ResetOffsetsRequest {
            supervisor_id: self.id.to_string(),
            topic: reset.topic,
            partitions: reset.partitions.iter().map(|partition| partition.0).collect(),
            new_offsets: Some((&reset.new_offsets).into()),
            expected: Some((&reset.expected).into()),
            who: reset.who,
            why: reset.why,
            request_key: reset.key,
            coordinator_epoch: self.epoch(),
            stream: reset.stream.as_ref().map(wire::stream),
        };
        let (mut client, limit) = self.publisher();
        self.answer(async move {
            Event::OffsetsReset(committed(call(limit, client.reset_offsets(request)).await))
        });
    }

    fn register_group(&self, register: RegisterCall) {
        let request = publisher::RegisterGroupRequest {
            supervisor_id: register.supervisor.to_string(),
            group_id: register.group.to_string(),
            base_sequence_name: register.base.to_string(),
            generation: register.generation.0,
            start: Some((&register.start).into()),
            assignment_tokens: register.tokens.iter().map(ToString::to_string).collect(),
            coordinator_epoch: self.epoch(),
            mode: register.mode.to_number(),
            topic: register.topic,
            revision: register.revision,
        };
        let (mut client, limit) = self.publisher();
        self.answer(async move {
            let result = call(limit, client.register_group(request)).await.map(|_| ());
            Event::GroupRegistered {
                group: register.group,
                result,
            }
        });
    }

    /// Calls a runner by its id, wherever it is now.
    fn ask_runner<F>(
        &self,
        runner: &RunnerId,
        task: TaskId,
        ask: impl FnOnce(RunnerClient, Duration) -> F + Send + 'static,
        failed: impl FnOnce(CallError) -> TaskAnswer + Send + 'static,
    ) where
        F: Future<Output = TaskAnswer> + Send,
    {
        let client = self.world.registry.client(runner);
        let limit = self.world.rpc_timeout;
        let away = CallError::Unreachable(format!("the address of runner {runner} is not known yet"));
        self.answer(async move {
            let answer = match client {
                Some(client) => ask(client, limit).await,
                None => failed(away),
            };
            Event::TaskAnswered { task, answer }
        });
    }

    fn assign(&self, runner: RunnerId, assignment: &Assignment) {
        let task = assignment.task.clone();
        tracing::info!(supervisor = %self.id, %runner, %task, start = %assignment.start, "a task is assigned");
        let request = runner::AssignTaskRequest {
            task: Some(wire::assignment(assignment)),
            coordinator_epoch: self.epoch(),
        };
        self.ask_runner(
            &runner,
            task,
            move |mut client, limit| async move {
                let result = async {
                    let answer = call(limit, client.assign_task(request)).await?;
                    let status =
                        convert::required("status", answer.status).map_err(|bad| wire::garbled(&bad))?;
                    wire::report(&status)
                        .map(Box::new)
                        .map_err(|bad| wire::garbled(&bad))
                };
                TaskAnswer::Assigned(result.await)
            },
            |error| TaskAnswer::Assigned(Err(error)),
        );
    }

    fn pause(&self, runner: RunnerId, task: TaskId) {
        let request = runner::PauseTaskRequest {
            task_id: task.to_string(),
            coordinator_epoch: self.epoch(),
        };
        self.ask_runner(
            &runner,
            task,
            move |mut client, limit| async move {
                let result = async {
                    let answer = call(limit, client.pause_task(request)).await?;
                    if !answer.paused {
                        return Ok(PauseAnswer::Accepted);
                    }
                    let next =
                        convert::offsets("next", answer.next.as_ref()).map_err(|bad| wire::garbled(&bad))?;
                    Ok(PauseAnswer::Standing(next))
                };
                TaskAnswer::Paused(result.await)
            },
            |error| TaskAnswer::Paused(Err(error)),
        );
    }
}
