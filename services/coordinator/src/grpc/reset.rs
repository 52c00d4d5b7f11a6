//! What a reset is asked to do, and what it would do, on the wire.

use std::collections::BTreeSet;

use tidegate_protocol::supervisor::{PartitionReset, ResetPlan, ResetTo};
use tidegate_rpc::convert;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_types::PartitionId;

use crate::actor::ResetWish;

pub(super) fn wish(request: &api::ResetRequest) -> Result<ResetWish, convert::BadField> {
    if let Some(wrong) = request.partitions.iter().find(|partition| **partition < 0) {
        return Err(convert::BadField::new(
            "partitions",
            format!("{wrong} is no partition"),
        ));
    }
    let partitions: BTreeSet<PartitionId> = request.partitions.iter().copied().map(PartitionId).collect();
    let offsets = convert::optional_offsets("offsets", request.offsets.as_ref())?.unwrap_or_default();
    let is_strange = |partition| !partitions.contains(&partition);
    if !partitions.is_empty() && offsets.partitions().any(is_strange) {
        let why = "names a partition that is not among `partitions`";
        return Err(convert::BadField::new("offsets", why));
    }
    let to = match api::ResetTo::try_from(request.to) {
        Ok(api::ResetTo::Unspecified) => ResetTo::AsSpec,
        Ok(api::ResetTo::Earliest) => ResetTo::Earliest,
        Ok(api::ResetTo::Latest) => ResetTo::Latest,
        // Not the nearest thing that this version knows: offsets would move to where nobody wanted them.
        Err(_) => {
            let why = format!("{} is not a place that this version knows", request.to);
            return Err(convert::BadField::new("to", why));
        }
    };
    Ok(ResetWish {
        partitions,
        offsets,
        to,
    })
}

pub(super) fn plan(plan: &ResetPlan) -> api::PlanResetResponse {
    let one = |plan: &PartitionReset| api::PartitionReset {
        partition: plan.partition.0,
        from: plan.from.map(|offset| offset.0),
        to: plan.to.0,
        skipped: plan.skipped.width(),
        read_again: plan.again.width(),
    };
    api::PlanResetResponse {
        partitions: plan.partitions.iter().map(one).collect(),
    }
}
