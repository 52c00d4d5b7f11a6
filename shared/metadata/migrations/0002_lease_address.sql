-- Leader election. 0.1.0 writes holder, epoch and acquired_at only, when it takes over: then `leased_epoch` is not
-- `epoch`, and the columns beside it are those of the holder before.
ALTER TABLE leases ADD COLUMN address TEXT NOT NULL DEFAULT '';        -- where the holder is called
ALTER TABLE leases ADD COLUMN leased_epoch BIGINT NOT NULL DEFAULT 0;  -- epoch that these columns belong to
ALTER TABLE leases ADD COLUMN renewal BIGINT NOT NULL DEFAULT 0;       -- renewals in this epoch
ALTER TABLE leases ADD COLUMN lasts_millis BIGINT NOT NULL DEFAULT 0;  -- life of the lease without a renewal
