//! Object stores: staged upload, verification, promotion, orphan sweep.
