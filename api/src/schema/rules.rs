//! Rules in CEL.
