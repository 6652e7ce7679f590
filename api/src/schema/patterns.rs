//! Patterns of strings: what the schema says with a regular expression.

/// An object's name: a DNS subdomain.
pub(crate) const OBJECT_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A label's value.
pub(crate) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// An image with or without tag and digest. Loose: `image::Reference` parses it.
pub(crate) const IMAGE_REFERENCE: &str = "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$";

/// A repository, without tag or digest; a `:` only before a registry's port.
pub(crate) const REPOSITORY: &str = "^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5}/)?[A-Za-z0-9._/-]*$";

/// A tag, as registries take it.
pub(crate) const TAG: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$";

/// A user by name or number, with or without group.
pub(crate) const USER: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$";
