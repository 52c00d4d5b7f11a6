//! Generated protocol code, transports (in-process and gRPC), conversions, domain error to status, tower layers.
