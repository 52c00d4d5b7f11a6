//! The last line of a chore that measures something: one JSON object, for programs.

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// Prints the object as the last line of standard output; an error, or `"ok": false`, is a failure of the chore.
pub(crate) fn finish(what: &str, outcome: Result<Value>) -> Result<()> {
    let (object, failure) = judge(outcome);
    println!("{object}");
    match failure {
        None => Ok(()),
        Some(reason) => bail!("{what}: {reason}"),
    }
}

fn judge(outcome: Result<Value>) -> (Value, Option<String>) {
    match outcome {
        Err(error) => {
            let reason = format!("{error:#}");
            (json!({"ok": false, "error": reason}), Some(reason))
        }
        Ok(object) => match object.get("ok") {
            // A benchmark has no totals that could be wrong; it has measured or it has failed.
            None | Some(Value::Bool(true)) => (object, None),
            Some(_) => (object, Some("a total is not what it must be".to_owned())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_not_ok_and_an_error_are_failures_and_still_objects() {
        let good = json!({"rows": 39_244, "ok": true});
        assert_eq!(judge(Ok(good.clone())), (good, None));
        assert!(judge(Ok(json!({"ok": false}))).1.is_some());
        assert!(judge(Ok(json!({"ok": "yes"}))).1.is_some());
        assert!(judge(Ok(json!({"rows_per_second": 1}))).1.is_none());
        let (object, failure) = judge(Err(anyhow::anyhow!("no broker")));
        assert_eq!(object, json!({"ok": false, "error": "no broker"}));
        assert_eq!(failure.unwrap(), "no broker");
    }
}
