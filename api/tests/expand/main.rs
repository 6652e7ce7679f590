//! Expansion by example: each rule of the design on small clusters.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod fill;
mod gate;
mod missing;
mod pin;
mod scale;
mod take_back;
mod world;
