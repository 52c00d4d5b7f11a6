//! Roll-up of one metric: rows with equal (time, dimensions) become one.
//!
//! Null plus a value is the value; nulls alone stay null. Long sums wrap around on overflow, as integer arithmetic
//! does. A NaN never wins a minimum or a maximum over a number. Float sums are added in the order of
//! (partition, offset), in one pass over all rows of the segment, so they do not depend on spills or replicas (I3). That is why
//! runs keep every row until the last merge.

use tidegate_spec::MetricKind;

pub(crate) fn long(kind: MetricKind, so_far: Option<i64>, value: Option<i64>) -> Option<i64> {
    let (Some(a), Some(b)) = (so_far, value) else {
        return so_far.or(value);
    };
    Some(match kind {
        MetricKind::LongMin => a.min(b),
        MetricKind::LongMax => a.max(b),
        _ => a.wrapping_add(b),
    })
}

pub(crate) fn double(kind: MetricKind, so_far: Option<f64>, value: Option<f64>) -> Option<f64> {
    let (Some(a), Some(b)) = (so_far, value) else {
        return so_far.or(value);
    };
    let pick = |wins: std::cmp::Ordering| match (a.is_nan(), b.is_nan()) {
        (true, false) => b,
        (false, true) => a,
        // A total order, so that -0.0 and 0.0 do not depend on who came first.
        _ if b.total_cmp(&a) == wins => b,
        _ => a,
    };
    Some(match kind {
        MetricKind::DoubleMin | MetricKind::FloatMin => pick(std::cmp::Ordering::Less),
        MetricKind::DoubleMax | MetricKind::FloatMax => pick(std::cmp::Ordering::Greater),
        _ => a + b,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_never_wins_over_a_number() {
        for kind in [MetricKind::DoubleMax, MetricKind::DoubleMin] {
            assert_eq!(double(kind, Some(f64::NAN), Some(3.0)), Some(3.0));
            assert_eq!(double(kind, Some(3.0), Some(f64::NAN)), Some(3.0));
        }
        assert!(
            double(MetricKind::DoubleMax, Some(f64::NAN), Some(f64::NAN))
                .unwrap()
                .is_nan()
        );
        let zeros = |a, b| double(MetricKind::DoubleMax, Some(a), Some(b)).unwrap().to_bits();
        assert_eq!(zeros(0.0, -0.0), zeros(-0.0, 0.0));
    }

    #[test]
    fn null_is_nothing_and_long_sums_wrap() {
        assert_eq!(long(MetricKind::LongSum, None, Some(2)), Some(2));
        assert_eq!(long(MetricKind::LongSum, None, None), None);
        assert_eq!(long(MetricKind::LongSum, Some(i64::MAX), Some(1)), Some(i64::MIN));
        assert_eq!(
            long(MetricKind::LongMin, Some(i64::MAX), Some(i64::MIN)),
            Some(i64::MIN)
        );
        assert_eq!(
            double(MetricKind::DoubleSum, Some(1e308), Some(1e308)),
            Some(f64::INFINITY)
        );
    }
}
