//! Namespaces, veth pairs and bridges to test in
