//! Proofs: what was published is proven, and what is missing is found.

use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::publisher::v1::{PublishOutcome, VerifyFault};

use crate::world::{Group, World, at, publish};

async fn page(world: &mut World, token: &str) -> wire::VerifyResponse {
    let request = wire::VerifyRequest {
        data_source: "wiki".into(),
        deep: true,
        page_size: 1,
        page_token: token.into(),
    };
    world.client.verify(request).await.unwrap().into_inner()
}

/// All pages behind the first one.
async fn segments(world: &mut World) -> Vec<wire::VerifyResponse> {
    let mut pages = Vec::new();
    let mut token = "0".to_owned();
    while !token.is_empty() {
        let next = page(world, &token).await;
        token.clone_from(&next.next_page_token);
        pages.push(next);
    }
    pages
}

#[tokio::test]
async fn what_was_published_is_proven_page_by_page_and_an_object_that_is_gone_is_found() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let request = wire::VerifyRequest {
        data_source: "wiki".into(),
        ..Default::default()
    };
    let refused = world.client.verify(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    for group in [Group::new("a", 2, 5), Group::new("b", 5, 8)] {
        group.register(&mut world).await;
        let (wish, _) = group.ready(&mut world, 0).await;
        assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
    }
    world.all_promoted().await;
    let first = page(&mut world, "").await;
    assert_eq!(first.findings, []);
    assert_eq!(first.publishes, 2);
    let covered = &first.coverage[0];
    assert_eq!(
        (covered.start, covered.end, covered.committed, covered.ranges),
        (2, 8, 8, 2)
    );
    let pages = segments(&mut world).await;
    assert_eq!(pages.len(), 2);
    let found: Vec<(u64, u64, usize)> = pages
        .iter()
        .map(|page| (page.segments, page.rows, page.findings.len()))
        .collect();
    assert_eq!(found, [(1, 3, 0), (1, 3, 0)]);

    let key = world.catalog().await[1].segment.clone().unwrap().key;
    std::fs::remove_file(world.objects().join(&key)).unwrap();
    let pages = segments(&mut world).await;
    assert_eq!(pages[0].findings, []);
    let finding = &pages[1].findings[0];
    assert_eq!(finding.fault(), VerifyFault::Object);
    assert!(finding.detail.contains("is not there"), "{}", finding.detail);
}
